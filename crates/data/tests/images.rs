//! Images are read and changed as Pillow does it; scripts/make_image_files.py wrote the files.

use std::path::PathBuf;

use polygrad_data::{Dataset, Image, ImageFolder, Rng};

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/images")
        .join(name)
}

fn open(name: &str) -> Image {
    Image::open(file(name)).unwrap()
}

#[test]
fn png_files_of_every_kind_are_read() {
    for kind in ["colour", "grey", "alpha", "palette", "bits"] {
        let image = open(&format!("{kind}.png"));
        assert_eq!(image.to_rgb(), open(&format!("as-rgb-{kind}.png")), "{kind}");
    }
    for name in ["colour.png", "grey.png"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("again.png");
        std::fs::write(&path, open(name).to_png().unwrap()).unwrap();
        assert_eq!(Image::open(path).unwrap(), open(name));
    }
    assert_eq!((open("grey.png").channels(), open("alpha.png").channels()), (1, 3));
    assert_eq!(open("colour.png").to_grayscale(), open("luma.png"));
}

#[test]
fn jpeg_files_are_read_but_for_rounding() {
    for (name, expected, most) in [
        ("full.jpg", "as-rgb-full.png", 3),
        ("half.jpg", "as-rgb-half.png", 12),
        ("grey.jpg", "as-rgb-grey-jpg.png", 2),
    ] {
        let (image, expected) = (open(name).to_rgb(), open(expected));
        assert_eq!((image.height(), image.width()), (23, 37));
        let pairs = image.pixels().iter().zip(expected.pixels());
        let differences: Vec<u32> = pairs.map(|(a, b)| u32::from(a.abs_diff(*b))).collect();
        let mean = f64::from(differences.iter().sum::<u32>()) / differences.len() as f64;
        let max = *differences.iter().max().unwrap();
        assert!(max <= most && mean < 1.0, "{name}: {max} at most, {mean} in the mean");
    }
}

#[test]
fn sizes_change_bit_by_bit_as_in_pillow() {
    let image = open("colour.png");
    for (width, height) in [(16, 16), (50, 40), (37, 9), (7, 23), (1, 1)] {
        let expected = open(&format!("resized-{width}x{height}.png"));
        assert_eq!(image.resize(height, width).unwrap(), expected, "{width} × {height}");
    }
    assert_eq!(image.resize(23, 37).unwrap(), image);
    assert!(image.resize(0, 3).is_err());
    assert!(image.resize(1 << 20, 1 << 20).is_err());
}

#[test]
fn parts_and_mirrors_are_where_they_should_be() {
    let image = Image::new(1, 2, 3, vec![1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(image.horizontal_flip().pixels(), [3, 2, 1, 6, 5, 4]);
    assert_eq!(image.crop(0, 1, 2, 2).unwrap().pixels(), [2, 3, 5, 6]);
    assert_eq!(
        image.pad(1).unwrap().pixels(),
        [0, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 4, 5, 6, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(image.center_crop(1, 1).unwrap().pixels(), [2]);
    assert!(image.pad(usize::MAX).is_err() && image.pad(1 << 20).is_err());
    let error = image.crop(1, 0, 2, 3).unwrap_err().to_string();
    assert!(
        error.contains("2 × 3 pixels from (1, 0) on are not in an image of 2 × 3"),
        "{error}"
    );
    let colours = Image::new(3, 1, 2, vec![1, 2, 3, 4, 5, 6]).unwrap();
    assert_eq!(colours.horizontal_flip().pixels(), [4, 5, 6, 1, 2, 3]);
    let seen = colours.normalize(&[0.0, 0.0, 1.0 / 255.0], &[1.0 / 255.0; 3]).unwrap();
    assert_eq!(seen.shape().dims(), [3, 1, 2]);
    for (value, expected) in seen
        .as_slice::<f32>()
        .unwrap()
        .iter()
        .zip([1.0, 4.0, 2.0, 5.0, 2.0, 5.0])
    {
        assert!((value - expected).abs() < 1e-5, "{seen:?}");
    }
    assert!(colours.normalize(&[0.0, 0.0], &[1.0]).is_err());
    assert!(colours.normalize(&[0.0, 0.0], &[1.0, 1.0]).is_err());

    let mut rng = Rng::new(1);
    let mut corners = [0; 9];
    for _ in 0..900 {
        let part = image.random_crop(2, 3, 1, &mut rng).unwrap();
        let place = part.pixels().iter().position(|&p| p == 1);
        // Where the 1 is, or is cut off.
        corners[place.map_or(8, |at| at.min(7))] += 1;
        let part = image.random_resized_crop(4, 4, 0.3, &mut rng).unwrap();
        assert_eq!((part.height(), part.width()), (4, 4));
    }
    assert!(
        corners[0] > 60 && corners[1] > 60 && corners[3] > 60 && corners[4] > 60,
        "{corners:?}"
    );
    let flipped = (0..1000)
        .filter(|_| image.clone().random_horizontal_flip(0.25, &mut rng) != image)
        .count();
    assert!((200..300).contains(&flipped), "{flipped}");
}

#[test]
fn folders_are_classes() {
    let dir = tempfile::tempdir().unwrap();
    let put = |from: &str, to: &str| {
        let to = dir.path().join(to);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(file(from), to).unwrap();
    };
    put("grey.png", "dog/b/1.PNG");
    put("full.jpg", "dog/a.jpeg");
    put("colour.png", "cat/x.png");
    put("colour.png", ".hidden/x.png");
    std::fs::write(dir.path().join("dog/notes.txt"), "none").unwrap();
    let folder = ImageFolder::open(dir.path()).unwrap();
    assert_eq!(
        (folder.classes(), folder.len()),
        (&["cat".to_owned(), "dog".to_owned()][..], 3)
    );
    let (image, class) = folder.example(2).unwrap();
    assert_eq!((image.channels(), class), (3, 1));
    assert!(folder.files()[2].0.ends_with("b/1.PNG"));

    let damaged = dir.path().join("cat/y.png");
    let whole = std::fs::read(file("colour.png")).unwrap();
    for (bytes, words) in [
        (&whole[..whole.len() / 2], "y.png is no whole PNG file"),
        (b"GIF89a", "y.png is neither a PNG nor a JPEG file"),
        (&[0xff, 0xd8, 0xff], "y.png is no whole JPEG file"),
    ] {
        std::fs::write(&damaged, bytes).unwrap();
        let error = ImageFolder::open(dir.path())
            .unwrap()
            .example(1)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    }
    let error = ImageFolder::open(dir.path().join("dog/b")).unwrap_err().to_string();
    assert!(error.contains("does not hold a folder for each class"), "{error}");
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let error = ImageFolder::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("empty does not hold PNG or JPEG files"), "{error}");
}
