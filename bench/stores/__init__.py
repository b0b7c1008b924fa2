"""The routing stores by themselves: what each operation costs, and whether it grows with what is queued."""
