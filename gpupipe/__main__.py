"""`python -m gpupipe` is `gpupipe`."""

from gpupipe.cli import main

if __name__ == "__main__":
    main()
