//! Images are read and changed as by Pillow; scripts/make_image_files.py wrote the files.

use std::path::PathBuf;

use polygrad_data::{Affine, Collate, ColorJitter, Dataset, Image, ImageFolder, Rng};
use polygrad_tensor::{DType, Device};

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

/// The images stacked in a file, each as high as `like`.
fn stacked(name: &str, like: &Image) -> Vec<Image> {
    let all = open(name);
    let count = all.height() / like.height();
    let one = |i: usize| all.crop(i * like.height(), 0, like.height(), like.width()).unwrap();
    (0..count).map(one).collect()
}

/// A mask of numbers, with 0 outside.
fn numbers() -> Image {
    open("mask-numbers.png").into_mask(0)
}

#[test]
fn images_and_masks_turn_bit_by_bit_as_in_pillow() {
    let colour = open("colour.png");
    let square = colour.crop(0, 5, 23, 23).unwrap();
    let degrees = [0.0, 12.5, 45.0, 90.0, 180.0, 270.0, 301.0];
    for (name, image) in [("colour", &colour), ("numbers", &numbers()), ("square", &square)] {
        let expected = stacked(&format!("rotated-{name}.png"), image);
        assert_eq!(expected.len(), degrees.len());
        for (degrees, expected) in degrees.into_iter().zip(&expected) {
            let turned = image.rotate(degrees).unwrap();
            assert_eq!(turned.pixels(), expected.pixels(), "{name} by {degrees}");
        }
    }
    let maps = [
        (0.0, [3.0, -2.0], 1.0, [0.0, 0.0]),
        (20.0, [0.0, 0.0], 0.8, [0.0, 0.0]),
        (-33.0, [2.5, 1.0], 1.4, [8.0, 0.0]),
        (110.0, [0.0, -4.0], 1.1, [-12.0, 20.0]),
        (0.0, [1.0, 1.0], 2.0, [0.0, 0.0]),
    ];
    for (name, image) in [("colour", &colour), ("numbers", &numbers())] {
        let expected = stacked(&format!("affine-{name}.png"), image);
        assert_eq!(expected.len(), maps.len());
        for ((degrees, translate, scale, shear), expected) in maps.into_iter().zip(&expected) {
            let affine = Affine {
                degrees,
                translate,
                scale,
                shear,
            };
            let mapped = image.affine(&affine).unwrap();
            assert_eq!(mapped.pixels(), expected.pixels(), "{name}: {affine:?}");
        }
    }
    for (width, height) in [(16, 16), (50, 40), (37, 9), (7, 23), (1, 1)] {
        let expected = open(&format!("nearest-{width}x{height}.png"));
        assert_eq!(
            colour.resize_nearest(height, width).unwrap(),
            expected,
            "{width} × {height}"
        );
    }
    assert!(colour.rotate(f64::NAN).is_err() && colour.rotate(f64::INFINITY).is_err());
    for wrong in [
        Affine {
            scale: 0.0,
            ..Affine::default()
        },
        Affine {
            translate: [f64::INFINITY, 0.0],
            ..Affine::default()
        },
    ] {
        assert!(colour.affine(&wrong).is_err(), "{wrong:?}");
    }
    // Far outside the image there is nothing, and nothing overflows.
    let far = Affine {
        translate: [1e300, -1e300],
        scale: 1e-300,
        degrees: 3.0,
        ..Affine::default()
    };
    for image in [&colour, &numbers()] {
        if let Ok(mapped) = image.affine(&far) {
            assert!(mapped.pixels().iter().all(|&pixel| pixel == 0));
        }
    }
}

#[test]
fn colours_change_bit_by_bit_as_in_torchvision() {
    let image = open("colour.png");
    let mut expected = stacked("jittered-colour.png", &image).into_iter();
    let factors = [0.0, 0.35, 1.0, 1.8];
    type Change = fn(&Image, f64) -> polygrad_core::Result<Image>;
    let changes: [Change; 3] = [
        Image::adjust_brightness,
        Image::adjust_contrast,
        Image::adjust_saturation,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for factor in factors {
            assert_eq!(
                change(&image, factor).unwrap(),
                expected.next().unwrap(),
                "{number} by {factor}"
            );
        }
        for wrong in [-0.1, f64::NAN, f64::INFINITY] {
            assert!(change(&image, wrong).is_err());
        }
    }
    for share in [-0.5, -0.21, 0.0, 0.1, 0.37] {
        assert_eq!(image.adjust_hue(share).unwrap(), expected.next().unwrap(), "{share}");
    }
    assert!(expected.next().is_none() && image.adjust_hue(0.51).is_err());
    let grey = open("grey.png");
    assert_eq!(grey.adjust_hue(0.2).unwrap(), grey);
    assert_eq!(grey.adjust_saturation(0.2).unwrap(), grey);

    let mut rng = Rng::new(3);
    let jitter = ColorJitter {
        brightness: 0.4,
        contrast: 0.4,
        saturation: 0.4,
        hue: 0.1,
    };
    let jittered: Vec<Image> = (0..4).map(|_| image.color_jitter(&jitter, &mut rng).unwrap()).collect();
    assert!(jittered.windows(2).all(|pair| pair[0] != pair[1]));
    assert_eq!(image.color_jitter(&ColorJitter::default(), &mut rng).unwrap(), image);
    assert_eq!(numbers().color_jitter(&jitter, &mut rng).unwrap(), numbers());
    for (hue, contrast) in [(0.7, 0.0), (-0.1, 0.0), (0.0, f64::NAN), (0.0, -1.0)] {
        let wrong = ColorJitter {
            hue,
            contrast,
            ..jitter
        };
        assert!(image.color_jitter(&wrong, &mut rng).is_err(), "{wrong:?}");
    }
}

#[test]
fn masks_are_numbers_that_stay_numbers() {
    for bits in [1, 2, 4, 8] {
        let mask = Image::open_mask(file(&format!("mask-{bits}.png")), 255).unwrap();
        let expected = |y: usize, x: usize| ((x / 5 + 7 * (y / 4)) % (1 << bits)) as i64;
        let labels = mask.to_labels().unwrap();
        assert_eq!((labels.shape().dims(), labels.dtype()), (&[23, 37][..], DType::I64));
        for (at, &label) in labels.as_slice::<i64>().unwrap().iter().enumerate() {
            assert_eq!(label, expected(at / 37, at % 37), "{bits} bits");
        }
    }
    let mask = Image::open_mask(file("mask-8.png"), 255).unwrap();
    assert_eq!(mask, Image::open_mask(file("mask-numbers.png"), 255).unwrap());
    let known = |image: &Image| image.pixels().iter().all(|p| *p == 255 || mask.pixels().contains(p));
    assert_eq!(mask.resize(11, 50).unwrap(), mask.resize_nearest(11, 50).unwrap());
    let mut rng = Rng::new(5);
    for _ in 0..20 {
        let changed = mask
            .random_resized_crop(20, 20, 0.2, &mut rng)
            .unwrap()
            .random_rotation(30.0, &mut rng)
            .unwrap();
        assert!(known(&changed) && changed.pixels().contains(&255));
    }
    assert!(mask.pad(1).unwrap().pixels()[..39].iter().all(|&pixel| pixel == 255));
    assert_eq!(mask.pad(1).unwrap().crop(1, 1, 23, 37).unwrap(), mask);
    for (name, words) in [
        ("colour.png", "has colours or opacity"),
        ("alpha.png", "has colours or opacity"),
        ("full.jpg", "is no PNG file"),
    ] {
        let error = Image::open_mask(file(name), 255).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(words), "{error}");
    }
    let error = open("colour.png").into_mask(0).to_labels().unwrap_err().to_string();
    assert!(error.contains("3 channels are no numbers"), "{error}");
    let device = Device::<polygrad_cpu::Cpu>::default();
    let batch = Collate::collate(vec![(open("colour.png"), mask.clone()); 2], &device).unwrap();
    assert_eq!((batch.0.dims(), batch.0.dtype()), (vec![2, 3, 23, 37], DType::F32));
    assert_eq!((batch.1.dims(), batch.1.dtype()), (vec![2, 23, 37], DType::I64));
}

#[test]
fn an_image_and_its_mask_change_alike() {
    // An image whose pixels equal its mask's numbers shows whether each pixel still matches its mask.
    let mask = Image::open_mask(file("mask-4.png"), 0).unwrap();
    let image = Image::new(1, 23, 37, mask.pixels().to_vec()).unwrap();
    let mut rng = Rng::new(7);
    let mut kinds = std::collections::HashSet::new();
    for _ in 0..30 {
        let before = rng.clone();
        let [a, b] = Image::together([image.clone(), mask.clone()], &mut rng, |x, rng| {
            let x = x.random_crop(16, 16, 3, rng)?;
            Ok(x.random_horizontal_flip(0.5, rng).random_vertical_flip(0.5, rng))
        })
        .unwrap();
        assert_eq!(a.pixels(), b.pixels());
        assert!(rng != before);
        kinds.insert(a.pixels().to_vec());
    }
    assert!(kinds.len() > 20);
    let [a, b] = Image::together([mask.clone(), mask.clone()], &mut rng, |x, rng| {
        x.random_resized_crop(16, 16, 0.3, rng)?.random_rotation(45.0, rng)
    })
    .unwrap();
    assert_eq!(a, b);
    let small = mask.resize(5, 5).unwrap();
    let error = Image::together([image, small], &mut rng, |x, _| Ok(x))
        .unwrap_err()
        .to_string();
    assert!(error.contains("23 × 37 pixels and one of 5 × 5"), "{error}");
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
    assert_eq!(image.vertical_flip().pixels(), [4, 5, 6, 1, 2, 3]);
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
        // The position of the 1, or that it was cut off.
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
    let flipped = (0..1000)
        .filter(|_| image.clone().random_vertical_flip(0.25, &mut rng) != image)
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
    for name in ["dog/b/w.webp", "dog/notes.txt", "x.gif", "dog/.hidden"] {
        std::fs::write(dir.path().join(name), "none").unwrap();
    }
    let folder = ImageFolder::open(dir.path()).unwrap();
    let left_out = folder
        .left_out()
        .iter()
        .map(|path| path.strip_prefix(dir.path()).unwrap());
    let wanted = ["x.gif", "dog/b/w.webp", "dog/notes.txt"].map(std::path::Path::new);
    assert_eq!(left_out.collect::<Vec<_>>(), wanted);
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
        (b"GIF89a", "y.png is a GIF file, and PNG and JPEG files are read"),
        (b"hello", "y.png is neither a PNG nor a JPEG file"),
        (&[0xff, 0xd8, 0xff], "y.png is no whole JPEG file"),
    ] {
        std::fs::write(&damaged, bytes).unwrap();
        let error = ImageFolder::open(dir.path())
            .unwrap()
            .example(1)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
    let error = ImageFolder::open(dir.path().join("dog/b")).unwrap_err().to_string();
    assert!(error.contains("does not hold a folder for each class"), "{error}");
    std::fs::create_dir(dir.path().join("empty")).unwrap();
    let error = ImageFolder::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("empty does not hold PNG or JPEG files"), "{error}");
}
