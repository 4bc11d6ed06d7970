"""measure(): probes of a call whose output somebody else computes."""
