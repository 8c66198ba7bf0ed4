//! The cases, in an order that is the same on every rank.

use std::time::{Duration, Instant};

use polygrad_core::communicator::{Checked, Communicator, HostSlice, HostSliceMut, Reduction};
use polygrad_core::{AnyBackend, Backend, DType, ErrorKind, HostTensor, Result, Shape};

use super::rank::Rank;
use super::values::{Kind, different, slice, values, wrong};

/// Zero, one, odd lengths, and those around the size of a vector register or a cache line.
const LENGTHS: [usize; 9] = [0, 1, 2, 3, 7, 64, 65, 1000, 4097];
const REDUCTIONS: [Reduction; 3] = [Reduction::Sum, Reduction::Min, Reduction::Max];
const KINDS: [Kind; 2] = [Kind::Small, Kind::Wild];
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

pub(super) fn all(rank: &mut Rank, most: usize) -> Result<()> {
    identity(rank)?;
    for dtype in DType::ALL {
        gathers(rank, dtype)?;
        broadcasts(rank, dtype)?;
        for op in REDUCTIONS {
            if (dtype, op) == (DType::Bool, Reduction::Sum) {
                continue;
            }
            reduces(rank, dtype, op)?;
            scatters(rank, dtype, op)?;
        }
    }
    not_a_number(rank)?;
    wraps(rank)?;
    any_and_all(rank)?;
    waits(rank)?;
    order(rank)?;
    long(rank, most)?;
    refusals(rank)?;
    threads(rank)?;
    second_groups(rank)?;
    tensors(rank)?;
    mismatches(rank)?;
    every_rank_passes(rank)
}

/// The inputs of all ranks, which each rank can compute.
fn inputs(rank: &Rank, dtype: DType, len: usize, kind: Kind, seed: u64) -> Result<Vec<HostTensor>> {
    (0..rank.size())
        .map(|other| values(dtype, len, kind, seed, other))
        .collect()
}

fn vector<T: polygrad_core::Element>(values: Vec<T>) -> Result<HostTensor> {
    HostTensor::new(Shape::new(&[values.len()])?, values)
}

/// Concatenates parts.
fn joined(parts: &[HostTensor]) -> Result<HostTensor> {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.bytes()).copied().collect();
    let dtype = parts[0].dtype();
    HostTensor::from_bytes(dtype, Shape::new(&[bytes.len() / dtype.size()])?, &bytes)
}

fn part(whole: &HostTensor, index: usize, len: usize) -> Result<HostTensor> {
    let bytes = len * whole.dtype().size();
    let bytes = &whole.bytes()[index * bytes..(index + 1) * bytes];
    HostTensor::from_bytes(whole.dtype(), Shape::new(&[len])?, bytes)
}

fn holds(rank: &Rank, what: &str, wrong: Option<String>) {
    if let Some(wrong) = wrong {
        rank.fails(format!("{what}: {wrong}"));
    }
}

fn identity(rank: &mut Rank) -> Result<()> {
    rank.case("identity");
    let (own, size) = (rank.rank(), rank.size());
    rank.expect(own < size, || format!("rank {own} of {size}"));
    let comm = rank.comm()?;
    rank.expect(!comm.name().is_empty(), || "no name".to_owned());
    rank.expect(!comm.timeout().is_zero(), || "no time".to_owned());
    let ranks = rank.all_gather(&vector(vec![own as i64])?)?.to_vec::<i64>()?;
    let expected: Vec<i64> = (0..size as i64).collect();
    rank.expect(ranks == expected, || format!("the ranks are {ranks:?}"));
    Ok(())
}

fn gathers(rank: &mut Rank, dtype: DType) -> Result<()> {
    rank.case(format!("all_gather {dtype}"));
    for len in LENGTHS {
        let inputs = inputs(rank, dtype, len, Kind::Wild, len as u64)?;
        let got = rank.all_gather(&inputs[rank.rank()])?;
        let exact = got.bytes() == joined(&inputs)?.bytes();
        rank.expect(exact, || format!("{len} values a rank are others than were sent"));
    }
    Ok(())
}

fn broadcasts(rank: &mut Rank, dtype: DType) -> Result<()> {
    rank.case(format!("broadcast {dtype}"));
    for root in 0..rank.size() {
        for len in LENGTHS {
            let inputs = inputs(rank, dtype, len, Kind::Wild, len as u64)?;
            let got = rank.broadcast(&inputs[rank.rank()], root)?;
            let exact = got.bytes() == inputs[root].bytes();
            rank.expect(exact, || {
                format!("{len} values of rank {root} are others than were sent")
            });
        }
    }
    Ok(())
}

fn reduces(rank: &mut Rank, dtype: DType, op: Reduction) -> Result<()> {
    rank.case(format!("all_reduce {dtype} {}", op.as_str()));
    for len in LENGTHS {
        for kind in KINDS {
            let inputs = inputs(rank, dtype, len, kind, len as u64)?;
            let got = rank.all_reduce(&inputs[rank.rank()], op)?;
            holds(rank, &format!("{len} values"), wrong(&got, &inputs, op)?);
            let again = rank.all_reduce(&inputs[rank.rank()], op)?;
            let same = got.bytes() == again.bytes();
            rank.expect(same, || format!("{len} values: other bits the second time"));
        }
    }
    rank.compare()
}

fn scatters(rank: &mut Rank, dtype: DType, op: Reduction) -> Result<()> {
    rank.case(format!("reduce_scatter {dtype} {}", op.as_str()));
    for len in LENGTHS {
        for kind in KINDS {
            let inputs = inputs(rank, dtype, len * rank.size(), kind, len as u64)?;
            let got = rank.reduce_scatter(&inputs[rank.rank()], op)?;
            let own = rank.rank();
            let parts: Vec<_> = inputs.iter().map(|x| part(x, own, len)).collect::<Result<_>>()?;
            holds(rank, &format!("{len} values"), wrong(&got, &parts, op)?);
            let again = rank.reduce_scatter(&inputs[own], op)?;
            let same = got.bytes() == again.bytes();
            rank.expect(same, || format!("{len} values: other bits the second time"));
        }
    }
    Ok(())
}

/// NaN wins, whichever rank has it; infinities are compared as numbers.
fn not_a_number(rank: &mut Rank) -> Result<()> {
    for (dtype, op) in FLOATS
        .into_iter()
        .flat_map(|dtype| [(dtype, Reduction::Min), (dtype, Reduction::Max)])
    {
        rank.case(format!("NaN {dtype} {}", op.as_str()));
        let (own, size) = (rank.rank(), rank.size());
        // One element for each rank that has NaN there, and one where all ranks have numbers.
        let mut sent: Vec<f64> = (0..=size)
            .map(|at| if at == own { f64::NAN } else { own as f64 })
            .collect();
        sent.push(if own == 0 { f64::NEG_INFINITY } else { 1.0 });
        sent.push(if own == 0 { f64::INFINITY } else { 1.0 });
        let mut expected = vec![f64::NAN; size];
        let (min, alone) = (op == Reduction::Min, size == 1);
        expected.push(if min { 0.0 } else { size as f64 - 1.0 });
        expected.push(if min || alone { f64::NEG_INFINITY } else { 1.0 });
        expected.push(if min && !alone { 1.0 } else { f64::INFINITY });
        let expected = vector(expected)?.cast(dtype);
        let sent = vector(sent)?.cast(dtype);
        let got = rank.all_reduce(&sent, op)?;
        holds(rank, "all_reduce", different(&got, &expected));
        let whole: Vec<_> = (0..size).map(|_| sent.clone()).collect();
        let got = rank.reduce_scatter(&joined(&whole)?, op)?;
        holds(rank, "reduce_scatter", different(&got, &expected));
        rank.compare()?;
    }
    Ok(())
}

fn wraps(rank: &mut Rank) -> Result<()> {
    rank.case("integers wrap");
    let (own, size) = (rank.rank(), rank.size());
    // A single rank has nothing to add.
    let more = u8::from(size > 1);
    let last = |most: i64, one: i64| match own {
        0 => most,
        1 => one,
        _ => 0,
    };
    let got = rank.all_reduce(&vector(vec![last(255, 1) as u8])?, Reduction::Sum)?;
    let expected = 255u8.wrapping_add(more);
    rank.expect(got.as_slice::<u8>()? == [expected], || format!("u8: {got:?}"));
    let got = rank.all_reduce(&vector(vec![last(i32::MAX.into(), 1) as i32])?, Reduction::Sum)?;
    let expected = i32::MAX.wrapping_add(more.into());
    rank.expect(got.as_slice::<i32>()? == [expected], || format!("i32: {got:?}"));
    let got = rank.all_reduce(&vector(vec![last(i64::MAX, 1)])?, Reduction::Sum)?;
    let expected = i64::MAX.wrapping_add(more.into());
    rank.expect(got.as_slice::<i64>()? == [expected], || format!("i64: {got:?}"));
    Ok(())
}

fn any_and_all(rank: &mut Rank) -> Result<()> {
    rank.case("bool any and all");
    let (own, size) = (rank.rank(), rank.size());
    let sent = vector(vec![false, true, own == 0, own == size - 1])?;
    let alone = size == 1;
    for (op, expected) in [
        (Reduction::Min, [false, true, alone, alone]),
        (Reduction::Max, [false, true, true, true]),
    ] {
        let got = rank.all_reduce(&sent, op)?;
        rank.expect(got.as_slice::<bool>()? == expected, || {
            format!("{} of {sent:?}: {got:?}", op.as_str())
        });
    }
    let bools = rank.comm()?.all_reduce(bools(&mut [0; 2])?, Reduction::Sum);
    rank.refused("a sum of bools", ErrorKind::DType, bools);
    rank.barrier()
}

fn bools(bytes: &mut [u8]) -> Result<HostSliceMut<'_>> {
    HostSliceMut::from_bytes(DType::Bool, bytes)
}

/// No rank continues before all have arrived, even if nothing is sent.
fn waits(rank: &mut Rank) -> Result<()> {
    const NAP: Duration = Duration::from_millis(30);
    let nothing = vector(Vec::<f32>::new())?;
    for call in ["barrier", "all_reduce", "reduce_scatter", "all_gather", "broadcast"] {
        rank.case(format!("{call} of nothing waits"));
        for late in 0..rank.size() {
            let begun = Instant::now();
            rank.barrier()?;
            // All ranks have read the clock by now.
            if late == rank.rank() {
                std::thread::sleep(NAP);
            }
            match call {
                "barrier" => rank.barrier()?,
                "all_reduce" => drop(rank.all_reduce(&nothing, Reduction::Sum)?),
                "reduce_scatter" => drop(rank.reduce_scatter(&nothing, Reduction::Sum)?),
                "all_gather" => drop(rank.all_gather(&nothing)?),
                _ => drop(rank.broadcast(&nothing, late)?),
            }
            rank.expect(begun.elapsed() >= NAP, || format!("goes on before rank {late} comes"));
        }
    }
    Ok(())
}

/// Calls of ranks that are at different points are not mixed up.
fn order(rank: &mut Rank) -> Result<()> {
    rank.case("order");
    for turn in 0..40usize {
        let size = rank.size();
        if turn % (size + 1) == rank.rank() {
            std::thread::sleep(Duration::from_millis(2));
        }
        let len = 1 + turn * 7 % 50;
        let all = inputs(rank, DType::I64, len * size, Kind::Wild, turn as u64)?;
        let own = all[rank.rank()].clone();
        let failure = match turn % 4 {
            0 => wrong(&rank.all_reduce(&own, Reduction::Sum)?, &all, Reduction::Sum)?,
            1 => different(&rank.all_gather(&own)?, &joined(&all)?),
            2 => different(&rank.broadcast(&own, turn % size)?, &all[turn % size]),
            _ => {
                let got = rank.reduce_scatter(&own, Reduction::Max)?;
                let parts: Vec<_> = all.iter().map(|x| part(x, rank.rank(), len)).collect::<Result<_>>()?;
                wrong(&got, &parts, Reduction::Max)?
            }
        };
        holds(rank, &format!("call {turn}"), failure);
    }
    rank.compare()
}

fn long(rank: &mut Rank, most: usize) -> Result<()> {
    rank.case(format!("{most} values"));
    let (own, size) = (rank.rank(), rank.size());
    let all = inputs(rank, DType::F32, most, Kind::Wild, 1)?;
    let got = rank.all_reduce(&all[own], Reduction::Sum)?;
    holds(rank, "all_reduce", wrong(&got, &all, Reduction::Sum)?);
    let again = rank.all_reduce(&all[own], Reduction::Sum)?;
    rank.expect(got.bytes() == again.bytes(), || "other bits the second time".to_owned());
    let got = rank.broadcast(&all[own], size - 1)?;
    holds(rank, "broadcast", different(&got, &all[size - 1]));
    let len = most / size;
    let parts: Vec<_> = all.iter().map(|x| part(x, own, len)).collect::<Result<_>>()?;
    let shape = Shape::new(&[len * size])?;
    let whole = HostTensor::from_bytes(DType::F32, shape, &all[own].bytes()[..len * size * 4])?;
    let got = rank.reduce_scatter(&whole, Reduction::Sum)?;
    holds(rank, "reduce_scatter", wrong(&got, &parts, Reduction::Sum)?);
    let got = rank.all_gather(&parts[own])?;
    let expected: Vec<_> = (0..size)
        .map(|other| part(&all[other], other, len))
        .collect::<Result<_>>()?;
    holds(rank, "all_gather", different(&got, &joined(&expected)?));
    rank.compare()
}

/// Invalid arguments of a single rank are rejected before anything is sent, and the group continues to work.
fn refusals(rank: &mut Rank) -> Result<()> {
    rank.case("what does not fit is refused");
    let size = rank.size();
    for alone in 0..size {
        if alone == rank.rank() {
            let comm = rank.comm()?;
            let kind = ErrorKind::InvalidArgument;
            let (whole, mut more) = (vec![0f32; 2 * size + 1], vec![0f32; 2 * size + 1]);
            let mut part = [0f32; 2];
            let mut others = [0i32; 2];
            let scattered = comm.reduce_scatter(HostSlice::new(&whole), HostSliceMut::new(&mut part), Reduction::Sum);
            rank.refused("a reduce_scatter of parts that do not fit", kind, scattered);
            let whole = HostSlice::new(&whole[1..]);
            let scattered = comm.reduce_scatter(whole, HostSliceMut::new(&mut others), Reduction::Sum);
            rank.refused("a reduce_scatter of two dtypes", kind, scattered);
            let gathered = comm.all_gather(HostSlice::new(&part), HostSliceMut::new(&mut more));
            rank.refused("an all_gather of parts that do not fit", kind, gathered);
            let gathered = comm.all_gather(HostSlice::new(&others), HostSliceMut::new(&mut more[1..]));
            rank.refused("an all_gather of two dtypes", kind, gathered);
            let sent = comm.broadcast(HostSliceMut::new(&mut part), size);
            rank.refused("a broadcast from a rank that is none", kind, sent);
            let summed = comm.all_reduce(bools(&mut [1; 3])?, Reduction::Sum);
            rank.refused("a sum of bools", ErrorKind::DType, summed);
        }
        let own = vector(vec![rank.rank() as f32])?;
        let sum = rank.all_reduce(&own, Reduction::Sum)?.to_f64_vec()[0];
        let expected = (size * (size - 1) / 2) as f64;
        rank.expect(sum == expected, || format!("afterwards a sum is {sum}, not {expected}"));
    }
    Ok(())
}

/// From any thread, one at a time.
fn threads(rank: &mut Rank) -> Result<()> {
    rank.case("calls of other threads");
    for turn in 0..4u64 {
        let all = inputs(rank, DType::F32, 100, Kind::Wild, turn)?;
        let own = all[rank.rank()].clone();
        let got = std::thread::scope(|scope| {
            let rank = &mut *rank;
            let called = scope.spawn(move || rank.all_reduce(&own, Reduction::Sum));
            called.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        holds(rank, "from a new thread", wrong(&got, &all, Reduction::Sum)?);
        let got = rank.all_gather(&all[rank.rank()])?;
        holds(rank, "from the old one", different(&got, &joined(&all)?));
    }
    rank.compare()
}

/// While some ranks wait in one group, others wait in the second group.
fn second_groups(rank: &mut Rank) -> Result<()> {
    rank.case("duplicate");
    let first = rank.comm()?;
    let second = match first.duplicate() {
        Err(error) if error.kind() == ErrorKind::Unsupported => return Ok(()),
        found => found?,
    };
    let same = (second.rank(), second.size()) == (first.rank(), first.size());
    rank.expect(same, || "other ranks".to_owned());
    let sum = |group: &dyn Communicator, value: i64| {
        let mut values = [value];
        group.all_reduce(HostSliceMut::new(&mut values), Reduction::Sum)?;
        Ok::<_, polygrad_core::Error>(values[0])
    };
    let size = rank.size() as i64;
    for _ in 0..10 {
        let (early, late) = match rank.rank() {
            0 => ((&*second, 100), (&*first, 1)),
            _ => ((&*first, 1), (&*second, 100)),
        };
        let sums = std::thread::scope(|scope| {
            let waits = scope.spawn(|| sum(early.0, early.1));
            std::thread::sleep(Duration::from_millis(2));
            let own = sum(late.0, late.1);
            (waits.join(), own)
        });
        let (Ok(waited), own) = sums else {
            rank.fails("a thread panics".to_owned());
            return Ok(());
        };
        let (waited, own) = (waited?, own?);
        let right = (waited, own) == (early.1 * size, late.1 * size);
        rank.expect(right, || format!("the sums are {waited} and {own}"));
    }
    Ok(())
}

fn tensors(rank: &mut Rank) -> Result<()> {
    rank.case("tensors");
    let (own, size) = (rank.rank(), rank.size());
    let comm = rank.comm()?;
    let device = crate::reference();
    let matrix = |other: usize| values(DType::F32, 6, Kind::Small, 3, other)?.reshape(Shape::new(&[2, 3])?);
    let all: Vec<_> = (0..size).map(matrix).collect::<Result<_>>()?;
    let tensor = AnyBackend::from_host(all[own].clone(), device.inner())?;
    let host = |rank: &Rank, result: Result<_>| {
        rank.called();
        AnyBackend::to_host(&result?)
    };
    let got = host(rank, comm.all_reduce_tensor(&tensor, Reduction::Sum))?;
    rank.expect(got.shape().dims() == [2, 3], || {
        format!("all_reduce_tensor gives {}", got.shape())
    });
    holds(rank, "all_reduce_tensor", wrong(&got, &all, Reduction::Sum)?);
    let got = host(rank, comm.all_gather_tensor(&tensor))?;
    rank.expect(got.shape().dims() == [2 * size, 3], || {
        format!("all_gather_tensor gives {}", got.shape())
    });
    holds(rank, "all_gather_tensor", different(&got, &joined(&all)?));
    let got = host(rank, comm.broadcast_tensor(&tensor, size - 1))?;
    rank.expect(got.shape().dims() == [2, 3], || {
        format!("broadcast_tensor gives {}", got.shape())
    });
    holds(rank, "broadcast_tensor", different(&got, &all[size - 1]));
    Ok(())
}

/// [`Checked`] names the rank that calls something else, and the group continues to work.
fn mismatches(rank: &mut Rank) -> Result<()> {
    let (own, size) = (rank.rank(), rank.size());
    if size == 1 {
        return Ok(());
    }
    let odd = own == size - 1;
    let checked = Checked::new(rank.comm()?);
    let (mut floats, mut ints) = ([0f32; 4], [0i32; 3]);
    for (what, said) in [
        ("lengths", "all_reduce of 2 f32 by sum"),
        ("dtypes", "all_reduce of 3 i32 by sum"),
        ("reductions", "all_reduce of 3 f32 by max"),
        ("collectives", "barrier"),
        ("roots", "broadcast of 3 f32 from rank 1"),
    ] {
        rank.case(format!("other {what} are named"));
        let values = HostSliceMut::new(&mut floats[..3]);
        let done = match what {
            "roots" => checked.broadcast(values, usize::from(odd)),
            _ if !odd => checked.all_reduce(values, Reduction::Sum),
            "lengths" => checked.all_reduce(HostSliceMut::new(&mut floats[..2]), Reduction::Sum),
            "dtypes" => checked.all_reduce(HostSliceMut::new(&mut ints), Reduction::Sum),
            "reductions" => checked.all_reduce(values, Reduction::Max),
            _ => checked.barrier(),
        };
        rank.called();
        let error = match done {
            Err(error) if error.kind() == ErrorKind::InvalidArgument => error.to_string(),
            Err(error) => return Err(error),
            Ok(()) => "nothing".to_owned(),
        };
        let named = format!("rank {} {said}", size - 1);
        rank.expect(error.contains(&named), || format!("{error:?} does not say `{named}`"));
    }
    let all = inputs(rank, DType::F64, 5, Kind::Wild, 5)?;
    let mut got = all[own].to_vec::<f64>()?;
    checked.all_reduce(HostSliceMut::new(&mut got), Reduction::Sum)?;
    holds(rank, "afterwards", wrong(&vector(got)?, &all, Reduction::Sum)?);
    let mut gathered = vec![0f64; 5 * size];
    checked.all_gather(slice(&all[own])?, HostSliceMut::new(&mut gathered))?;
    holds(rank, "afterwards", different(&vector(gathered)?, &joined(&all)?));
    Ok(())
}

fn every_rank_passes(rank: &mut Rank) -> Result<()> {
    rank.case("every rank passes");
    let passes = rank.passes();
    let all = rank.all_gather(&vector(vec![passes])?)?.to_vec::<bool>()?;
    for (other, _) in all.iter().enumerate().filter(|(_, passes)| !**passes) {
        rank.expect(other == rank.rank(), || format!("rank {other} does not"));
    }
    Ok(())
}
