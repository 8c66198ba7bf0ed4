//! A Vulkan driver for Burn's wgpu devices: of a graphics card, or one that computes on the CPU.

use std::path::Path;

use crate::cache;

/// Finds a driver and the loader, and returns the variables that the driver needs: Mesa's requires a folder of the
/// user's own.
pub(crate) fn environment() -> Result<Vec<(String, String)>, String> {
    let drivers = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
    let named = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    let driver = named || drivers.iter().any(|folder| holds(Path::new(folder), ".json"));
    let libraries = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    let loader = libraries
        .iter()
        .any(|folder| Path::new(folder).join("libvulkan.so.1").exists());
    if !driver || !loader {
        return Err("there is no Vulkan driver: apt-get install mesa-vulkan-drivers libvulkan1".to_owned());
    }
    if std::env::var_os("XDG_RUNTIME_DIR").is_some() {
        return Ok(Vec::new());
    }
    let folder = cache::folder()?.join("runtime");
    make_private(&folder).map_err(|error| format!("no folder {} for the Vulkan driver: {error}", folder.display()))?;
    Ok(vec![("XDG_RUNTIME_DIR".to_owned(), folder.display().to_string())])
}

fn holds(folder: &Path, ending: &str) -> bool {
    let Ok(entries) = folder.read_dir() else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().ends_with(ending))
}

fn make_private(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}
