"""What both services share: signing, verification, errors, clocks and serving."""
