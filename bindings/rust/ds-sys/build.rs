// libds.so is looked for in DS_LIB_DIR, else in the build folder of this working copy, else where the linker looks. The
// programs that are built remember the first two.
use std::{env, path::Path};

fn main() {
    println!("cargo:rerun-if-env-changed=DS_LIB_DIR");
    let built = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../../build/lib");
    let folder = env::var("DS_LIB_DIR").ok().or_else(|| built.exists().then(|| built.display().to_string()));
    if let Some(folder) = folder {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:folder={folder}"); // DEP_DS_FOLDER of the crates that depend on this one
    }
    println!("cargo:rustc-link-lib=dylib=ds");
}
