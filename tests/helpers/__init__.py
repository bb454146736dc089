"""What tests share. Workers import it too: `tests` is on sys.path, here and in every spawned process."""
