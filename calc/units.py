"""Binary units of bytes. GB is 10^9 and is not used inside."""

KIB, MIB, GIB = 2**10, 2**20, 2**30
