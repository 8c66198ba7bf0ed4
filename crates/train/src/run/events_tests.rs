//! Reads written files back with the test's own small protobuf reader.

use super::*;

/// One field of a protobuf message.
#[derive(Debug, PartialEq)]
enum Field<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

fn read_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = read_varint(&mut bytes);
        let value = match key & 7 {
            0 => Field::Varint(read_varint(&mut bytes)),
            1 => {
                let (head, rest) = bytes.split_first_chunk().unwrap();
                bytes = rest;
                Field::Fixed64(u64::from_le_bytes(*head))
            }
            2 => {
                let length = read_varint(&mut bytes) as usize;
                let (head, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(head)
            }
            5 => {
                let (head, rest) = bytes.split_first_chunk().unwrap();
                bytes = rest;
                Field::Fixed32(u32::from_le_bytes(*head))
            }
            other => panic!("wire type {other}"),
        };
        out.push((key >> 3, value));
    }
    out
}

/// The step, tags and values of an event with a summary.
fn scalars_of(event: &[u8]) -> (u64, Vec<(String, f32)>) {
    let event = fields(event);
    let [
        (1, Field::Fixed64(time)),
        (2, Field::Varint(step)),
        (5, Field::Bytes(summary)),
    ] = event[..]
    else {
        panic!("{event:?}");
    };
    assert!(f64::from_bits(time) > 1.6e9);
    let values = fields(summary)
        .into_iter()
        .map(|(number, value)| {
            let Field::Bytes(value) = value else { panic!() };
            let value = fields(value);
            let [(1, Field::Bytes(tag)), (2, Field::Fixed32(bits))] = value[..] else {
                panic!("{value:?}");
            };
            assert_eq!(number, 1);
            (String::from_utf8(tag.to_vec()).unwrap(), f32::from_bits(bits))
        })
        .collect();
    (step, values)
}

fn written(path: &Path) -> Vec<u8> {
    let mut events = SummaryWriter::create(path).unwrap();
    for step in [1, 127, 128, 1 << 40] {
        events
            .add_scalars(&[("loss/train", 0.25), ("accuracy/train", step as f64)], step)
            .unwrap();
    }
    std::fs::read(path).unwrap()
}

#[test]
fn the_checksum_is_castagnolis() {
    // RFC 3720, B.4: 32 bytes of zeros give 8a9136aa; unmasking undoes the rotation and the constant.
    let unmask = |masked: u32| masked.wrapping_sub(0xa282_ead8).rotate_left(15);
    assert_eq!(unmask(masked_crc32c(&[0; 32])), 0x8a91_36aa);
    assert_eq!(unmask(masked_crc32c(b"123456789")), 0xe306_9283);
}

#[test]
fn events_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(&dir.path().join("events.out.tfevents.1"));
    let events: Vec<&[u8]> = records(&bytes).map(std::result::Result::unwrap).collect();
    assert_eq!(events.len(), 5);
    assert_eq!(fields(events[0])[1], (3, Field::Bytes(VERSION)));
    for (event, step) in events[1..].iter().zip([1, 127, 128, 1 << 40]) {
        let want = [
            ("loss/train".to_owned(), 0.25),
            ("accuracy/train".to_owned(), step as f32),
        ];
        assert_eq!(scalars_of(event), (step, want.to_vec()));
        assert_eq!(step_of(event), Some(step));
    }
}

#[test]
fn resuming_drops_later_steps_and_a_torn_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.out.tfevents.1");
    let bytes = written(&path);
    std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
    let mut events = SummaryWriter::resume(&path, 127).unwrap();
    events.add_scalar("loss/test", 1.0, 200).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let steps: Vec<u64> = records(&bytes).map(|e| step_of(e.unwrap()).unwrap()).collect();
    assert_eq!(steps, [0, 1, 127, 200]);
}

#[test]
fn damage_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("events.out.tfevents.1");
    let whole = written(&path);
    for at in [2, 9, 20] {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        let text = SummaryWriter::resume(&path, 1).unwrap_err().to_string();
        assert!(text.contains("is damaged at byte 0"), "{text}");
    }
}
