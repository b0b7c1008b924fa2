"""Client library of the relay: keys, envelopes, and the two parties that use them."""
