//! Tests of a backup's files on a disk that fails. After a crash at any operation, a folder with a
//! manifest must hold the whole base and all changes up to the seal.

use persist::aof::manifest::Manifest;
use persist::backup::{FileNames, OwnFolder, OwnNames};
use persist::folder::{FileError, Folder as _, IncomingFile, Place, Syncing};
use persist::save::ChunkSink as _;
use testkit::Rng;
use testkit::disk::{Fault, Plan, SimulatedFolder};

const BASE: &[u8] = b"the data of one moment";
/// The bytes of the incremental file: whole requests, as in an append-only file.
const CHANGES: &[&[u8]] =
    &[b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"];

fn names() -> FileNames {
    FileNames::new("appendonly.aof", 7)
}

/// Writes a backup from its start to its seal, in the order of the server's steps.
fn write(folder: &OwnFolder<'_>) -> Result<(), FileError> {
    let names = names();
    let incr = folder.create_log(&names.incr)?;
    let base = IncomingFile::create(folder, names.temporary_base.clone(), Syncing::AtEnd)?;
    incr.append(CHANGES[0]).map_err(|unwritten| unwritten.trouble)?;
    // An error is returned by the next call.
    let _ = base.append(BASE);
    base.put_in_place(&names.base, Place::Free)?;
    incr.append(CHANGES[1]).map_err(|unwritten| unwritten.trouble)?;
    incr.sync()?;
    names.write_manifest(folder)
}

/// Checks that the folder holds a whole backup if it holds a manifest. Returns true if it does.
fn is_whole(folder: &SimulatedFolder) -> bool {
    let names = names();
    let Some(text) = folder.file(&names.manifest) else { return false };
    let manifest = Manifest::parse(&text).expect("a whole manifest");
    let parts: Vec<&str> = manifest.parts().map(|part| &part.name[..]).collect();
    assert_eq!(parts, [&names.base, &names.incr]);
    assert_eq!(folder.file(&names.base).as_deref(), Some(BASE));
    assert_eq!(folder.file(&names.incr), Some(CHANGES.concat()));
    true
}

#[test]
fn a_crash_or_a_kill_at_any_operation_leaves_a_whole_backup_or_none() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let mut folder = SimulatedFolder::new(seed);
        folder.note_moments();
        write(&OwnFolder::new(&folder, &OwnNames::default())).expect("the disk works");
        let crashes = folder.crashes(&mut rng);
        let whole = crashes.iter().filter(|crash| is_whole(crash)).count();
        assert!(whole >= 1 && whole < crashes.len());
        assert!(
            is_whole(crashes.last().expect("some")),
            "seed {seed}: it was reported as sealed, and is lost"
        );
        for kill in folder.kills() {
            is_whole(&kill);
        }
    }
}

#[test]
fn after_a_fault_at_any_operation_the_files_can_be_removed() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        for at in 0.. {
            let folder = SimulatedFolder::new(seed);
            folder.plan(Plan::Once(at, *rng.pick(&[Fault::NoSpace, Fault::Io])));
            let own = OwnNames::default();
            let own_folder = OwnFolder::new(&folder, &own);
            let result = write(&own_folder);
            if folder.failed().is_empty() {
                assert_eq!(result, Ok(()));
                break;
            }
            assert!(result.is_err(), "operation {at} has failed");
            folder.plan(Plan::Never);
            // Only the last sync of the folder can fail with the manifest in its place.
            if !is_whole(&folder) {
                names().remove(&own_folder).expect("the disk works again");
                assert_eq!(folder.names(), [""; 0], "operation {at}");
            }
        }
    }
}

/// Creates a file as another program does.
fn create_foreign(folder: &SimulatedFolder, name: &str) {
    let log = folder.create_log(name).expect("the name is free");
    log.append(b"foreign").expect("the disk works");
}

#[test]
fn a_removal_leaves_files_of_other_programs() {
    let (folder, own) = (SimulatedFolder::new(1), OwnNames::default());
    let own_folder = OwnFolder::new(&folder, &own);
    create_foreign(&folder, "appendonly.aof.6.incr.aof");
    create_foreign(&folder, &names().manifest);
    own_folder.create_log(&names().incr).expect("free");
    names().remove(&own_folder).expect("the disk works");
    assert_eq!(folder.names(), ["appendonly.aof.6.incr.aof", &names().manifest]);
    names().remove(&own_folder).expect("nothing is left to remove");
}

#[test]
fn a_backup_fails_and_leaves_the_file_if_another_program_takes_a_name() {
    let probe = SimulatedFolder::new(1);
    write(&OwnFolder::new(&probe, &OwnNames::default())).expect("the disk works");
    let names = names();
    let mut taken = probe.names();
    taken.extend([names.temporary_base.clone(), "temp-appendonly.aof.manifest".to_owned()]);
    assert_eq!(taken.len(), 5);
    for name in taken {
        let (folder, own) = (SimulatedFolder::new(1), OwnNames::default());
        let own_folder = OwnFolder::new(&folder, &own);
        create_foreign(&folder, &name);
        write(&own_folder).expect_err(&name);
        names.remove(&own_folder).expect("the disk works");
        assert_eq!(folder.names(), [&name[..]]);
        assert_eq!(folder.file(&name).as_deref(), Some(&b"foreign"[..]), "{name}");
    }
}
