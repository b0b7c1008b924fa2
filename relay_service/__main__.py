"""`python -m relay_service` is the relay-service command."""

from relay_service.cli import main

if __name__ == "__main__":
    main()
