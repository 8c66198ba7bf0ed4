//! Small IDX files for tests.

/// An IDX file of unsigned bytes.
pub(crate) fn idx(dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let mut file = vec![0, 0, 8, dims.len() as u8];
    file.extend(dims.iter().flat_map(|d| d.to_be_bytes()));
    file.extend(bytes);
    file
}

/// A new folder that is removed when its guard is dropped.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}
