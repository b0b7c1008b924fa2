"""A durable task store with a conscience: leases, an effect ledger and bound approvals."""
