// Programs of the crates start without LD_LIBRARY_PATH. A build script cannot set a run path for the crates that depend
// on its crate. So this script builds a library with the same functions, but empty, whose soname is the whole path of
// the libds.so.0 that was found; the linker copies that name into every program. The folder is DS_LIB_DIR, or else the
// build folder of this working copy. If neither exists, linker and loader search their usual places.
use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=DS_LIB_DIR");
    println!("cargo:rerun-if-changed=src/lib.rs");
    println!("cargo:rerun-if-changed=build.rs");
    let built = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../../build/lib");
    let folder = env::var("DS_LIB_DIR").ok().or_else(|| built.exists().then(|| built.display().to_string()));
    if let Some(folder) = folder {
        name_library(&folder);
    }
    println!("cargo:rustc-link-lib=dylib=ds");
}

fn name_library(folder: &str) {
    let library = fs::canonicalize(folder).map(|found| found.join("libds.so.0")).unwrap_or_default();
    if !library.exists() {
        panic!("there is no libds.so.0 in '{folder}', which DS_LIB_DIR names");
    }
    let declared = fs::read_to_string("src/lib.rs").unwrap();
    let names = declared.lines().filter_map(|line| line.trim().strip_prefix("pub fn ")?.split('(').next());
    let out = env::var("OUT_DIR").unwrap();
    let source = format!("{out}/names.c");
    fs::write(&source, names.map(|name| format!("void {name}(void) {{}}\n")).collect::<String>()).unwrap();
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let made = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-fPIC", "-w", "-o", &format!("{out}/libds.so"), &source])
        .arg(format!("-Wl,-soname,{}", library.display()))
        .status();
    match made {
        Ok(status) if status.success() => println!("cargo:rustc-link-search=native={out}"),
        other => panic!("{compiler}, which also links Rust's programs, did not make {out}/libds.so: {other:?}"),
    }
}
