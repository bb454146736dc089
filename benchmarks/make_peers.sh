#!/usr/bin/env bash
# Make the environments of the peers, outside the repository: benchmarks/make_peers.sh [FOLDER]
# Tianshou wants versions of its own and has FOLDER-tianshou.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$(dirname "$here")/outrider-peers}
make_one() {
    local place=$1
    shift
    if [ ! -x "$place/bin/python" ]; then
        "${PYTHON:-python3}" -m venv "$place"
    fi
    "$place/bin/pip" install --quiet 'torch==2.13.0'
    "$place/bin/pip" install --quiet "$@"
    echo "$place/bin/python"
}
make_one "$folder" 'gymnasium==1.4.0' 'stable-baselines3==2.9.2' 'numpy==2.4.6' 'cpprb==11.0.0' 'torchrl==0.14.1'
make_one "$folder-tianshou" 'tianshou==2.0.1'
