"""The commands of relay-service, one module a group."""
