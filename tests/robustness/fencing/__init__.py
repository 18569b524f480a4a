"""A model check of the rules by which a bucket has one writer: real code, real threads, one schedule of many."""
