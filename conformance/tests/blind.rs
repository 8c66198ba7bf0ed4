//! Replaces every recorded output and gradient by zeros in the suite, as described in `docs/conformance.md`.

const PAGE: &str = include_str!("../../docs/conformance.md");

#[test]
fn zeros_pass_for_no_recorded_tensor_and_the_page_tells_the_counts() {
    let found = polygrad_conformance::blind().unwrap();
    assert_eq!(found.len(), 4);
    for blind in found {
        assert!(
            blind.pass.is_empty(),
            "{}: zeros pass for {:?}",
            blind.dtype,
            blind.pass
        );
        assert!(blind.recorded > 2000, "{blind}");
        let row = blind.to_string();
        assert!(
            PAGE.lines().any(|line| line == row),
            "docs/conformance.md should have the row {row}"
        );
    }
}
