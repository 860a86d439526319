//! Builds mimalloc from its C sources with the patches of `src/alloc/mimalloc`, which make its size
//! classes finer.
//!
//! The sources are those of `libmimalloc-sys`, whose build names their folder to the builds of its
//! direct dependents. No code of ours names that crate, so its own library is not linked.
//! `src/alloc/mimalloc.rs` declares the functions of the patched one.
//!
//! A patch applies only to the source that it was made for. If the checksum of a source differs,
//! the build stops.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// A change of one source of mimalloc.
struct Patch {
    /// The path of the source. `sha256` is the SHA-256 of its text in libmimalloc-sys.
    source: &'static str,
    sha256: &'static str,
    /// The unified diff.
    diff: &'static str,
}

const PATCHES: [Patch; 6] = [
    Patch {
        source: "include/mimalloc-stats.h",
        sha256: "5260df227ea1612b8678a06b063cc8f48e739b551554541cdeb4d430a7e257b3",
        diff: include_str!("src/alloc/mimalloc/01-number-of-bins.patch"),
    },
    Patch {
        source: "include/mimalloc/types.h",
        sha256: "b54e760da2a8d9d8a9cb708e280268c2d194c99bc518b21f72db70100578ad6a",
        diff: include_str!("src/alloc/mimalloc/02-check-of-bins.patch"),
    },
    Patch {
        source: "src/init.c",
        sha256: "eca1fe77d72ab2aaccc447c8119056e9c4e8851bda9a95472b573539f76107ad",
        diff: include_str!("src/alloc/mimalloc/03-queues-of-bins.patch"),
    },
    Patch {
        source: "src/page-queue.c",
        sha256: "7ec275805c9f00eb66710ffa99817b3ed1dba9826435d08f4866f7935152f6ae",
        diff: include_str!("src/alloc/mimalloc/04-bin-of-size.patch"),
    },
    Patch {
        source: "src/alloc-aligned.c",
        sha256: "70420b4430da4bb6b5197fd27c6c0df485249c53a986bc9536c9fb643fc7613b",
        diff: include_str!("src/alloc/mimalloc/05-aligned-lines.patch"),
    },
    Patch {
        source: "src/arena-meta.c",
        sha256: "86fde644ede2e8d582e53499568a1713516a20326e0350eaa06a28029cece91b",
        diff: include_str!("src/alloc/mimalloc/06-size-of-heap.patch"),
    },
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/alloc/mimalloc");
    let include = std::env::var_os("DEP_MIMALLOC_INCLUDE_DIR").expect("libmimalloc-sys names its sources");
    let sources = Path::new(&include).parent().expect("the folder of the headers is in that of the sources");
    let sources = patched(sources);
    // The flags are those of libmimalloc-sys. `NDEBUG` leaves the assertions of mimalloc out.
    cc::Build::new()
        .file(sources.join("src/static.c"))
        .include(sources.join("include"))
        .include(sources.join("src"))
        .flag_if_supported("-ftls-model=initial-exec")
        .define("MI_DEBUG", "0")
        .define("MI_BUILD_RELEASE", None)
        .define("NDEBUG", None)
        .warnings(false)
        .compile("patched_mimalloc");
}

/// Copies the sources of mimalloc in `folder`, applies all patches and returns the folder of the
/// copy.
fn patched(folder: &Path) -> PathBuf {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    let copy = Path::new(&out).join("patched-mimalloc");
    for part in ["include", "src"] {
        copy_folder(&folder.join(part), &copy.join(part));
    }
    for Patch { source, sha256, diff } in PATCHES {
        let text = fs::read_to_string(folder.join(source)).expect("libmimalloc-sys has this source");
        let found: String = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            found, sha256,
            "libmimalloc-sys has another {source}: make the patches of src/alloc/mimalloc anew for it, and enter its \
             SHA-256 here"
        );
        let patch = diffy::Patch::from_str(diff).expect("a unified diff");
        let text = diffy::apply(&text, &patch).expect("it was made for this text");
        fs::write(copy.join(source), text).expect("the output folder can be written");
    }
    copy
}

/// Copies the files of a folder and of the folders in it.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the output folder can be written");
    for entry in fs::read_dir(from).expect("the folder of the sources") {
        let entry = entry.expect("its entries");
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            let text = fs::read(&path).expect("a source can be read");
            fs::write(target, text).expect("the output folder can be written");
        }
    }
}
