"""`python -m crowdfl` is `crowdfl`."""

from crowdfl.cli.main import run

__all__: list[str] = []

if __name__ == "__main__":
    run()
