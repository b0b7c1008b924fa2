"""`python -m durable_service` is the durable-service command."""

from durable_service.cli import main

if __name__ == "__main__":
    main()
