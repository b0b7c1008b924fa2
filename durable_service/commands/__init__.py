"""The commands of durable-service, one file a group."""
