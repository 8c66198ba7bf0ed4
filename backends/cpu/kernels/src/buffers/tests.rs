use super::*;

#[test]
fn classes_are_tight_and_in_order() {
    let mut last = 0;
    for class in 0..CLASSES - 8 {
        let bytes = class_bytes(class);
        assert!(bytes > last, "class {class}");
        assert_eq!(class_of(bytes), class);
        assert_eq!(class_of(last + 1), class);
        last = bytes;
    }
    assert_eq!(class_of(0), 0);
    assert!(class_of(usize::MAX) < CLASSES);
    assert_eq!(class_of(1 << 20), LOCAL_CLASSES - 1);
}

#[test]
fn hands_the_last_block_out_again() {
    let first = Buffer::alloc(1000).unwrap();
    assert_eq!(first.as_ptr() as usize % ALIGN, 0);
    let capacity = first.capacity();
    assert!((1000..1280).contains(&capacity), "{capacity}");
    let address = first.as_ptr();
    let other = first.clone();
    assert!(!first.is_unique());
    drop(first);
    assert!(other.is_unique());
    drop(other);
    assert_eq!(Buffer::alloc(capacity).unwrap().as_ptr(), address);
}

/// Bytes in the calling thread's cache.
fn cached() -> usize {
    LOCAL.with(|local| local.counts.cached.load(Ordering::Relaxed))
}

#[test]
fn a_thread_keeps_what_it_took() {
    let theirs: Vec<Buffer> = (0..4).map(|_| Buffer::alloc(1000).unwrap()).collect();
    let freer = std::thread::spawn(move || {
        drop(theirs);
        assert_eq!(cached(), 0);
        drop([Buffer::alloc(1000).unwrap(), Buffer::alloc(1000).unwrap()]);
        assert_eq!(cached(), 2 * class_bytes(class_of(1000 + 2 * sentinel::ROOM)));
    });
    freer.join().unwrap();
}

#[test]
fn what_one_thread_takes_and_another_frees_is_not_hoarded() {
    let elsewhere = |buffer: Buffer| std::thread::spawn(move || drop(buffer)).join().unwrap();
    let before = cached();
    (0..100).for_each(|_| elsewhere(Buffer::alloc(3000).unwrap()));
    for _ in 0..100 {
        drop(std::thread::spawn(|| Buffer::alloc(3000).unwrap()).join().unwrap());
    }
    assert_eq!(cached(), before);
}

#[cfg(feature = "sentinels")]
#[test]
fn a_write_outside_is_reported() {
    let buffer = Buffer::alloc(10).unwrap();
    // SAFETY: the block has a fence there, and this test is about overwriting it.
    unsafe { buffer.as_ptr().add(12).write(0) };
    drop(buffer);
    let error = verdict().unwrap_err().to_string();
    assert!(
        error.contains("2 bytes behind the end of its buffer of 10 bytes"),
        "{error}"
    );
    assert!(verdict().is_ok());
}

#[test]
fn small_tensors_share_huge_pages() {
    let (first, at) = Buffer::in_huge_pages(1000).unwrap();
    let (second, next) = Buffer::in_huge_pages(1 << 20).unwrap();
    assert!(next >= at + 1000 || second.as_ptr() != first.as_ptr());
    assert_eq!((at % ALIGN, next % ALIGN), (0, 0));
    assert!(!first.is_unique() && !second.is_unique());
    let parts: Vec<_> = (0..40).map(|_| Buffer::in_huge_pages(1 << 20).unwrap()).collect();
    for (i, (block, at)) in parts.iter().enumerate() {
        assert!(at + (1 << 20) <= block.capacity());
        let apart =
            |(other, there): &(Buffer, usize)| other.as_ptr() != block.as_ptr() || there.abs_diff(*at) >= 1 << 20;
        assert!(parts[..i].iter().all(apart));
    }
    let (large, at) = Buffer::in_huge_pages(9 << 20).unwrap();
    assert!(large.is_unique() && at == 0);
}

#[test]
fn shares_foreign_memory() {
    let vector: Arc<dyn HostBytes> = Arc::new(vec![1f32, 2.0]);
    let buffer = Buffer::share(Shape::from([2]), Arc::clone(&vector)).unwrap();
    assert_eq!(buffer.as_ptr().cast_const(), vector.bytes().as_ptr());
    assert_eq!(buffer.capacity(), 8);
    assert!(!buffer.is_unique());
    assert_eq!(Arc::strong_count(&vector), 2);
    drop(buffer.clone());
    drop(buffer);
    assert_eq!(Arc::strong_count(&vector), 1);
}

#[test]
#[cfg_attr(miri, ignore = "Miri ends where memory does")]
fn too_much_is_an_error() {
    for bytes in [usize::MAX, isize::MAX as usize, 1 << 56] {
        let Err(error) = Buffer::alloc(bytes) else {
            panic!("{bytes} bytes cannot be had")
        };
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }
}
