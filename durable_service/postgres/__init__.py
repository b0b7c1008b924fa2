"""What the stores on PostgreSQL have in common: connections, and what their failures mean."""
