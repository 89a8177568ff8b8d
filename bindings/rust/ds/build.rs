fn main() {
    if let Ok(folder) = std::env::var("DEP_DS_FOLDER") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
