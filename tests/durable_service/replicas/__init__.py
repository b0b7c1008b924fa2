"""Several services on one database, which is restarted, killed and taken away from them."""
