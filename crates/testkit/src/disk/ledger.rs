//! The ledger of a simulated disk: checks that the bytes which an operation removes are no longer
//! needed. Such operations are the removal of a file, a rename over a file, and the cut of a log
//! file's end when it is opened.
//!
//! The present process *knows* a file that it has created or loaded. Bytes may be removed in these
//! cases:
//!
//! - An empty or unfinished file (`temp-…`), or a file that has a second name: always.
//! - A part of an append-only file: if no manifest that a crash can leave loads it. If the process
//!   does not know the part, each of these manifests must also list it as history, and there must
//!   be at least one.
//! - A manifest: if a synced manifest replaces it. The new manifest must name all parts that the
//!   old one loads. The names of the parts that it loads must be synced. The content of its base
//!   must be synced, too.
//! - Another file, for example a snapshot: if a synced file replaces it, and the process knows it.
//! - The end of a log file: if it contains no whole command or transaction, or the process knows
//!   the file.

use persist::aof::manifest::Manifest;
use persist::aof::reader::{End, Next, Reader};

use super::{File, State};

/// The suffix by which the name of an append-only file's manifest is recognized.
const MANIFEST: &str = ".manifest";

fn is_part(name: &str) -> bool {
    [".base.rdb", ".base.aof", ".incr.aof"].iter().any(|suffix| name.ends_with(suffix))
}

/// Returns true if a server that opens this manifest loads the file `name`.
fn loads(manifest: &Manifest, name: &str) -> bool {
    manifest.parts().any(|part| part.name == name)
}

impl State {
    /// Checks, before an operation, that the file `name` may be removed or be replaced by the file
    /// with number `successor`. Records a violation in `broken`.
    pub(super) fn check_name_goes(&mut self, name: &str, successor: Option<usize>) {
        let Some(&number) = self.names.get(name) else { return };
        let has_further_name = self.names.iter().any(|(other, &file)| file == number && other != name);
        let file = &self.files[number];
        if has_further_name || file.bytes.is_empty() || name.starts_with("temp-") {
            return;
        }
        let is_safe = successor.is_some_and(|new| self.files[new].bytes == self.files[new].safe);
        let finding = if name.ends_with(MANIFEST) {
            self.manifest_goes(&file.bytes, successor.filter(|_| is_safe))
        } else if is_part(name) {
            self.part_goes(name, file)
        } else if !file.is_known {
            Some("this life has neither made nor loaded it".to_owned())
        } else {
            (!is_safe).then(|| "nothing that is safe takes its place".to_owned())
        };
        self.broken = finding.map(|finding| format!("{name} must not go: {finding}"));
    }

    /// Returns the reason why the manifest with content `old` must not be replaced by `successor`
    /// or removed, if there is one.
    fn manifest_goes(&self, old: &[u8], successor: Option<usize>) -> Option<String> {
        let Some(new) = successor else { return Some("no manifest that is safe takes its place".to_owned()) };
        let (Ok(old), Ok(new)) = (Manifest::parse(old), Manifest::parse(&self.files[new].bytes)) else {
            return Some("one of the two cannot be read".to_owned());
        };
        let lost = old.parts().find(|part| !new.names(&part.name));
        let is_missing = |name: &str| !self.safe_names.contains_key(name);
        let missing = new.parts().find(|part| is_missing(&part.name));
        let base =
            new.base.as_ref().and_then(|base| self.names.get(&base.name)).map(|&base| &self.files[base]);
        match (lost, missing, base) {
            (Some(part), ..) => Some(format!("the next one does not name {}", part.name)),
            (None, Some(part), _) => Some(format!("a crash can take {} of the next one", part.name)),
            (None, None, Some(base)) if base.bytes != base.safe => {
                Some("the next base is not safe".to_owned())
            }
            _ => None,
        }
    }

    /// Returns the reason why a part of an append-only file must not be removed, if there is one.
    fn part_goes(&self, name: &str, file: &File) -> Option<String> {
        let changed = self.unsafe_names.iter().filter_map(|(name, file)| Some((name, (*file)?)));
        let possible = self.safe_names.iter().map(|(name, &file)| (name, file)).chain(changed);
        let mut manifests = 0;
        for (manifest_name, number) in possible.filter(|(name, _)| name.ends_with(MANIFEST)) {
            if manifest_name.starts_with("temp-") {
                continue;
            }
            let Ok(manifest) = Manifest::parse(&self.files[number].safe) else { continue };
            manifests += 1;
            if loads(&manifest, name) {
                return Some("a crash can leave a manifest that has it loaded".to_owned());
            }
            if !manifest.names(name) && !file.is_known {
                return Some("the manifest does not name it, and this life has not made it".to_owned());
            }
        }
        (manifests == 0 && !file.is_known).then(|| "no manifest says that it is history".to_owned())
    }

    /// Checks that the end of file `number`, after its first `len_bytes`, may be cut off when the
    /// file is opened. Records a violation in `broken`.
    pub(super) fn check_end_goes(&mut self, number: usize, len_bytes: u64) {
        let file = &self.files[number];
        if file.is_known || len_bytes >= file.bytes.len() as u64 {
            return;
        }
        // Sectors that were not written are zeros.
        let hole = file.bytes.iter().position(|&byte| byte == 0).unwrap_or(file.bytes.len());
        let whole = whole_len_bytes(&file.bytes[..hole]);
        if len_bytes < whole {
            self.broken = Some(format!("{} bytes of whole units must not be cut off", whole - len_bytes));
        }
    }
}

/// Returns the total length in bytes of the whole transactions and single commands at the start of
/// a log file.
fn whole_len_bytes(bytes: &[u8]) -> u64 {
    let mut reader = Reader::new(bytes);
    loop {
        match reader.next_batch() {
            Ok(Next::Batch(_)) => {}
            Ok(Next::End(End::Whole)) => return bytes.len() as u64,
            Ok(Next::End(End::TornTail(torn))) => return torn.good_len_bytes,
            Err(_) => return 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use persist::folder::Folder as _;

    use super::super::SimulatedFolder;

    const MANIFEST: &str = "a.manifest";
    const UNIT: &[u8] = b"*1\r\n$4\r\nPING\r\n";

    /// Returns a folder with these files, in the state in which a newly started process finds it:
    /// all synced, none loaded.
    fn found(files: &[(&str, &[u8])]) -> SimulatedFolder {
        let mut folder = SimulatedFolder::new(1);
        folder.note_moments();
        for (name, bytes) in files {
            let mut file = folder.create(name).expect("works");
            file.append(bytes).expect("works");
            file.sync().expect("works");
        }
        folder.sync().expect("works");
        folder.kills().pop().expect("there are moments")
    }

    fn breaks(act: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(act)).is_err()
    }

    fn put(folder: &SimulatedFolder, name: &str, text: &[u8]) {
        let mut file = folder.create("temp-x").expect("works");
        file.append(text).expect("works");
        file.sync().expect("works");
        folder.rename("temp-x", name).expect("works");
    }

    #[test]
    fn files_go_only_when_a_safe_one_has_taken_their_place() {
        let live: &[u8] = b"file a.1.incr.aof seq 1 type i\n";
        let both = b"file a.1.incr.aof seq 1 type h\nfile a.2.incr.aof seq 2 type i\n";
        let files = [("a.1.incr.aof", UNIT), ("a.2.incr.aof", UNIT), (MANIFEST, live)];
        let folder = found(&files);
        assert!(breaks(|| drop(folder.remove("a.1.incr.aof"))), "it is loaded");
        assert!(breaks(|| drop(found(&files).remove("a.2.incr.aof"))), "no manifest names it");
        assert!(breaks(|| drop(found(&files[..2]).remove("a.2.incr.aof"))), "there is no manifest");
        assert!(breaks(|| drop(found(&files).remove(MANIFEST))));
        let folder = found(&files);
        put(&folder, MANIFEST, both);
        assert!(breaks(|| drop(folder.remove("a.1.incr.aof"))), "the new manifest is not safe");
        let folder = found(&files);
        put(&folder, MANIFEST, both);
        folder.sync().expect("works");
        folder.remove("a.1.incr.aof").expect("it is history");
        let folder = found(&files);
        assert!(breaks(|| put(&folder, MANIFEST, b"file a.2.incr.aof seq 2 type i\n")), "a part is lost");
        let folder = found(&files);
        let of_none = b"file a.1.incr.aof seq 1 type i\nfile a.3.incr.aof seq 3 type i\n";
        assert!(breaks(|| put(&folder, MANIFEST, of_none)), "a part is missing");
    }

    #[test]
    fn snapshots_and_ends_of_files_go_only_when_this_life_knows_them() {
        let files = [("dump.rdb", &b"REDIS"[..]), ("f", UNIT)];
        let folder = found(&files);
        assert!(breaks(|| put(&folder, "dump.rdb", b"new")));
        let folder = found(&files);
        folder.note_loaded("dump.rdb");
        put(&folder, "dump.rdb", b"new");
        put(&folder, "dump.rdb", b"newer");
        let folder = found(&files);
        folder.link("dump.rdb", "kept").expect("works");
        put(&folder, "dump.rdb", b"new");
        let folder = found(&files);
        assert!(breaks(|| drop(folder.open_log("f", 0))));
        let folder = found(&[("f", &UNIT[..UNIT.len() - 3])]);
        drop(folder.open_log("f", 0).expect("it is torn"));
        assert!(breaks(|| drop(found(&files).create_log("f").expect("nothing has the name"))));
    }
}
