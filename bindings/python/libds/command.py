"""The command `libds` of a wheel: runs the program that is installed with this package."""
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Replaces this process by the program, with the same arguments."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "libds")
    try:
        os.execv(program, ["libds", *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit(f"libds: the program is not at {program}: only wheels have it; a build has build/bin/libds")


if __name__ == "__main__":
    main()
