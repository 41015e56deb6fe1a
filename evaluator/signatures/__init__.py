"""Signatures of scorecards: keys, signing, detection of later changes, trusted signers."""
