//! Clients that send a request after each answer, or arrivals at given times.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};

use crate::Error;
use crate::arguments::Load;
use crate::report::{Record, Report};
use crate::{grpc, http1};

/// The timeout of a connection and of an answer.
const PATIENCE: Duration = Duration::from_secs(20);

enum Connection {
    Http(http1::Connection),
    Grpc(grpc::Connection),
}

/// The state that all tasks share.
struct Run {
    asked: Load,
    request: Bytes,
    record: RefCell<Record>,
    /// Answers count from here on, if their requests were due before the end.
    start: Instant,
    end: Instant,
}

impl Connection {
    async fn open(asked: &Load) -> Result<Self, Error> {
        let opened = async {
            match asked.grpc {
                true => grpc::Connection::open(&asked.address).await.map(Self::Grpc),
                false => http1::Connection::open(&asked.address).await.map(Self::Http),
            }
        };
        let opened = tokio::time::timeout(PATIENCE, opened).await;
        opened.map_err(|_| format!("{} does not answer", asked.address))?
    }

    async fn ask(&mut self, run: &Run) -> Result<(u16, usize, bool), Error> {
        let answered = async {
            match self {
                Self::Http(connection) => connection.ask(&run.request).await,
                Self::Grpc(connection) => connection.ask(&run.asked, &run.request).await,
            }
        };
        let answered = tokio::time::timeout(PATIENCE, answered).await;
        answered.map_err(|_| "an answer did not come")?
    }
}

impl Run {
    /// Sends one request that was due at `due`; returns the connection if it can be used again.
    async fn once(&self, mut connection: Connection, due: Instant) -> Option<Connection> {
        let answer = connection.ask(self).await;
        let now = Instant::now();
        let counts = due >= self.start && due < self.end;
        match answer {
            Ok((status, bytes, goes_on)) => {
                if counts {
                    let mut record = self.record.borrow_mut();
                    record.answer(status, bytes, now - due, self.asked.deadline);
                }
                goes_on.then_some(connection)
            }
            Err(reason) => {
                if counts {
                    self.record.borrow_mut().broke(&reason.to_string());
                }
                None
            }
        }
    }
}

/// Loads a server as asked.
///
/// # Errors
/// If no server listens there. Later failures are counted.
pub async fn run(asked: Load) -> Result<Report, Error> {
    drop(Connection::open(&asked).await?);
    let request = match asked.grpc {
        true => grpc::request(&asked),
        false => http1::request(&asked),
    };
    let start = Instant::now() + asked.warmup;
    let (end, seconds, rate) = (start + asked.seconds, asked.seconds, asked.rate);
    let run = Rc::new(Run {
        asked,
        request,
        record: RefCell::default(),
        start,
        end,
    });
    match rate {
        None => closed(&run).await?,
        Some(rate) => open(&run, rate).await,
    }
    Ok(run.record.take().report(seconds.as_secs_f64()))
}

/// Each client has a connection, and always has a request on it.
async fn closed(run: &Rc<Run>) -> Result<(), Error> {
    let mut clients = JoinSet::new();
    for _ in 0..run.asked.clients {
        let (run, mut connection) = (run.clone(), Connection::open(&run.asked).await?);
        clients.spawn_local(async move {
            loop {
                let now = Instant::now();
                if now >= run.end {
                    return Ok::<(), String>(());
                }
                connection = match run.once(connection, now).await {
                    Some(connection) => connection,
                    None => Connection::open(&run.asked).await.map_err(|e| e.to_string())?,
                };
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}

/// Requests are due at the times of a Poisson process, independent of earlier answers.
async fn open(run: &Rc<Run>, rate: f64) {
    let free = Rc::new(RefCell::new(Vec::new()));
    let places = Rc::new(Semaphore::new(run.asked.clients));
    let begun = run.start - run.asked.warmup;
    let (mut due, noise, mut arrivals) = (begun, Noise(Cell::new(1)), JoinSet::new());
    loop {
        due += Duration::from_secs_f64(noise.exponential() / rate);
        if due >= run.end {
            break;
        }
        wait(due).await;
        let (run, free, places) = (run.clone(), free.clone(), places.clone());
        arrivals.spawn_local(async move {
            let Ok(_place) = places.acquire().await else { return };
            let taken = free.borrow_mut().pop();
            let connection = match taken {
                Some(connection) => Ok(connection),
                None => Connection::open(&run.asked).await,
            };
            match connection {
                Ok(connection) => {
                    // Not borrowed while waiting.
                    let kept = run.once(connection, due).await;
                    free.borrow_mut().extend(kept);
                }
                Err(reason) => run.record.borrow_mut().broke(&reason.to_string()),
            }
        });
        while arrivals.try_join_next().is_some() {}
    }
    while arrivals.join_next().await.is_some() {}
}

/// Waits until `due`, to the microsecond: a timer by itself would be late by a millisecond.
async fn wait(due: Instant) {
    let early = due.saturating_duration_since(Instant::now());
    if early > Duration::from_millis(3) {
        tokio::time::sleep(early - Duration::from_millis(2)).await;
    }
    while Instant::now() < due {
        yield_now().await;
    }
}

/// SplitMix64 by Steele, Lea and Flood: the same arrivals in each run.
struct Noise(Cell<u64>);

impl Noise {
    /// With a mean of 1.
    fn exponential(&self) -> f64 {
        let state = self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.0.set(state);
        let mut z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        let uniform = ((z >> 11) + 1) as f64 / (1u64 << 53) as f64;
        -uniform.ln()
    }
}
