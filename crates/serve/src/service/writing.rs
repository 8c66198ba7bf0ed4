//! Texts that a language model writes, one after the other, each on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, OwnedMutexGuard, mpsc};

use super::Service;
use crate::{Failure, Finish, Language, Prompt, Reason, Style};

/// Where texts are written: one at a time, and the others wait in line.
#[derive(Default)]
pub(super) struct Desk {
    turn: Arc<Mutex<()>>,
    waiting: AtomicUsize,
}

/// What happens while texts are written.
#[derive(Debug)]
pub(crate) enum Event {
    /// Writing begins; the number of tokens of all prompts together.
    Begun(usize),
    /// A piece of the text behind this prompt.
    Piece(usize, String),
    /// That text is complete.
    Ended(usize, Finish),
    /// Nothing more will come.
    Failed(Failure),
}

/// What is to be written behind prompts, in their order.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) prompts: Vec<Prompt>,
    /// The most tokens of each; none for as many as there is room for.
    pub(crate) count: Option<usize>,
    pub(crate) style: Style,
}

/// The most tokens where a request does not say it: memory for all of them is taken at once.
const MOST: usize = 2048;

/// Counts who waits, also where a request is given up.
struct InLine<'a>(&'a AtomicUsize);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Service {
    /// The model as one that writes.
    pub(crate) fn language(&self) -> Option<&dyn Language> {
        self.model.language()
    }

    /// Has texts written once it is their turn; dropping the receiver ends that with the next token.
    ///
    /// # Errors
    /// Too many wait, or it has waited for too long; the system gives no thread.
    pub(crate) async fn write(self: &Arc<Self>, order: Order) -> Result<mpsc::UnboundedReceiver<Event>, Failure> {
        let since = Instant::now();
        let turn = self.turn().await;
        let turn = turn.inspect_err(|failure| {
            self.refused(failure);
            let is_late = failure.reason == Reason::Late;
            self.statistics.late.fetch_add(u64::from(is_late), Ordering::Relaxed);
            self.statistics.fail.add(since.elapsed());
        })?;
        // Not bounded, so that a client that reads slowly does not hold the model: a text is short.
        let (sender, receiver) = mpsc::unbounded_channel();
        let own = Arc::clone(self);
        let work = move || own.work(&order, &sender, turn, since);
        thread::Builder::new()
            .name("writer".to_owned())
            .spawn(work)
            .map_err(|e| {
                Failure::new(
                    Reason::Busy(Duration::from_secs(1)),
                    format!("no thread could be started: {e}"),
                )
            })?;
        Ok(receiver)
    }

    async fn turn(&self) -> Result<OwnedMutexGuard<()>, Failure> {
        let waiting = self.desk.waiting.fetch_add(1, Ordering::AcqRel);
        let _in_line = InLine(&self.desk.waiting);
        if waiting >= self.settings.max_queue {
            let message = format!("{waiting} requests wait for this model, which is its limit");
            return Err(Failure::new(Reason::Busy(Duration::from_secs(1)), message));
        }
        let turn = Arc::clone(&self.desk.turn).lock_owned();
        let Some(patience) = self.settings.timeout else {
            return Ok(turn.await);
        };
        tokio::time::timeout(patience, turn).await.map_err(|_| {
            let message = format!(
                "the request waited for {} s, which is the model's limit: come again when fewer wait",
                patience.as_secs_f64()
            );
            Failure::new(Reason::Late, message)
        })
    }

    fn work(&self, order: &Order, sender: &mpsc::UnboundedSender<Event>, turn: OwnedMutexGuard<()>, since: Instant) {
        let last = self.write_all(order, sender).unwrap_or_else(Event::Failed);
        drop(turn);
        // Counted before the client can ask for it.
        match &last {
            _ if sender.is_closed() => drop(self.statistics.cancelled.fetch_add(1, Ordering::Relaxed)),
            Event::Failed(_) => self.statistics.fail.add(since.elapsed()),
            _ => self.statistics.answered(since.elapsed()),
        }
        // The client may have gone.
        let _ = sender.send(last);
    }

    /// Writes all texts, and gives the last event instead of sending it.
    fn write_all(&self, order: &Order, sender: &mpsc::UnboundedSender<Event>) -> Result<Event, Failure> {
        let of_run = |error: polygrad_core::Error| Failure::of_run(&error);
        let language = self
            .language()
            .ok_or_else(|| Failure::invalid("this model writes no texts"))?;
        let prompts = order
            .prompts
            .iter()
            .map(|prompt| language.tokens(prompt).map_err(of_run));
        let prompts = prompts.collect::<Result<Vec<Vec<i64>>, _>>()?;
        let rooms = prompts
            .iter()
            .map(|prompt| room(prompt, order.count, language.positions()));
        let rooms = rooms.collect::<Result<Vec<usize>, _>>()?;
        let mut last = Event::Begun(prompts.iter().map(Vec::len).sum());
        for (number, (prompt, count)) in prompts.iter().zip(rooms).enumerate() {
            let _ = sender.send(last);
            let mut piece = |text: &str| match text {
                "" => !sender.is_closed(),
                text => sender.send(Event::Piece(number, text.to_owned())).is_ok(),
            };
            let finish = language
                .write(prompt, count, &order.style, &mut piece)
                .map_err(of_run)?;
            last = Event::Ended(number, finish);
        }
        Ok(last)
    }
}

/// How many tokens to write behind a prompt.
fn room(prompt: &[i64], count: Option<usize>, positions: usize) -> Result<usize, Failure> {
    let left = positions.saturating_sub(prompt.len());
    match count {
        Some(count) if count <= left => Ok(count),
        None if left > 0 => Ok(left.min(MOST)),
        _ => Err(Failure::invalid(format!(
            "the prompt has {} tokens and {} more are asked for, but the maximum context length here is {positions} \
             tokens: shorten the prompt or lower max_tokens",
            prompt.len(),
            count.unwrap_or(1)
        ))),
    }
}
