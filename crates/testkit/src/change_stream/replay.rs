//! Replaying a stream.
