#!/usr/bin/env bash
# Make the environment of the peers, outside the repository: benchmarks/make_peers.sh [FOLDER]
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$(dirname "$here")/outrider-peers}
if [ ! -x "$folder/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$folder"
fi
"$folder/bin/pip" install --quiet 'torch==2.13.0'
"$folder/bin/pip" install --quiet 'gymnasium==1.4.0' 'stable-baselines3==2.9.2' 'numpy==2.4.6'
echo "$folder/bin/python"
