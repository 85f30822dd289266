"""`python -m pharos`: the same as the `pharos` command."""

from pharos.cli import main

if __name__ == "__main__":
    main()
