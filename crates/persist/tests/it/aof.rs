//! Tests that read append-only files which real servers have written.

use std::fs;
use std::path::{Path, PathBuf};

use persist::aof::manifest::Manifest;
use persist::aof::reader::{End, Next, Reader, RequestPosition, starts_with_rdb};

fn folder_of(server: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/files/aof").join(server)
}

const SERVERS: [&str; 4] = ["redis-8.0.2", "redis-8.0.6", "valkey-8.1.1", "valkey-9.1.2"];

#[test]
fn manifests_of_real_servers_are_read_and_written_the_same() {
    for server in SERVERS {
        let text = fs::read_to_string(folder_of(server).join("appendonly.aof.manifest")).unwrap();
        let manifest = Manifest::parse(text.as_bytes()).unwrap();
        assert_eq!(manifest.to_text(), text, "{server}");
        let start = server.starts_with("redis").then_some(3);
        assert_eq!(manifest.incr[0].start_offset, start, "{server}");
        let generations = manifest.generations();
        let of = |number: usize| {
            let generation = &generations[number];
            let base = generation.base.unwrap().name.clone();
            (base, generation.incr.iter().map(|part| part.seq).collect::<Vec<_>>())
        };
        assert_eq!(of(0), ("appendonly.aof.2.base.rdb".to_owned(), vec![2]));
        assert_eq!(of(1), ("appendonly.aof.1.base.rdb".to_owned(), vec![1, 2]));
        for part in manifest.parts().chain(&manifest.history) {
            let bytes = fs::read(folder_of(server).join(&part.name)).unwrap();
            assert_eq!(starts_with_rdb(&bytes), part.name.ends_with(".rdb"), "{server}: {}", part.name);
        }
    }
}

#[test]
fn incremental_files_of_real_servers_are_whole() {
    for server in SERVERS {
        let bytes = fs::read(folder_of(server).join("appendonly.aof.2.incr.aof")).unwrap();
        let mut reader = Reader::new(&bytes[..]);
        let Ok(Next::Batch(batch)) = reader.next_batch() else { panic!("{server}: no commands") };
        assert!(matches!(reader.next_batch(), Ok(Next::End(End::Whole))), "{server}");
        assert_eq!((batch.len(), batch.len_bytes(), batch.annotations().len()), (22, bytes.len(), 3));
        assert!(batch.annotations().is_sorted_by_key(|annotation| annotation.time_s));
        let units: Vec<_> = batch.units().filter(|unit| unit.len() > 1).collect();
        assert_eq!(units.iter().map(ExactSizeIterator::len).collect::<Vec<_>>(), [5, 4], "{server}");
        assert!(units.iter().all(|unit| batch.request(unit.start).standing == RequestPosition::Multi));
        let names: Vec<_> = batch.requests().map(|request| request.arg(0).unwrap().to_vec()).collect();
        assert!(names.contains(&b"flushall".to_vec()), "{server}");
        let setrange = batch.requests().find(|request| request.arg(0) == Some(b"setrange")).unwrap();
        assert!(setrange.arg(3).unwrap().ends_with(b"\r\n"));
        // The file is cut as a crash in the middle of a write cuts it.
        for len in (0..bytes.len()).step_by(7) {
            let mut reader = Reader::new(&bytes[..len]);
            let good = loop {
                match reader.next_batch() {
                    Ok(Next::Batch(_)) => {}
                    Ok(Next::End(End::Whole)) => break len as u64,
                    Ok(Next::End(End::TornTail(torn))) => break torn.good_len_bytes,
                    Err(error) => panic!("{server}, {len} bytes: {error}"),
                }
            };
            assert!(good <= len as u64);
        }
    }
}
