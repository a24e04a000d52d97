//! Start any program at the cost of vfork.
