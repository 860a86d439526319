//! Tests of the number of bytes that a thread may allocate before it sums used memory again.

use engine::evict::MemoryLimit;

#[test]
fn freed_bytes_are_no_room_while_memory_is_over_its_limit() {
    let value = vec![0_u8; 100_000];
    let mut memory = MemoryLimit::default();
    memory.begin_turn(1, 2);
    drop(value);
    assert!(!memory.allows(0) && !memory.allows(1_000));
    memory.begin_turn(u64::MAX, 2);
    assert!(memory.allows(1_000));
}
