//! Text generation by a language model, several texts at a time: new texts join those in progress.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::Service;
use crate::{Failure, Finish, Language, Piece, Prompt, Reason, Style, Writing};

/// Texts are written by one thread, which ends when there are none left.
#[derive(Default)]
pub(super) struct Desk(Mutex<Line>);

#[derive(Default)]
struct Line {
    waiting: VecDeque<Ticket>,
    /// Whether the thread is running.
    is_open: bool,
}

/// A request that waits for a place in the batch.
struct Ticket {
    order: Order,
    events: mpsc::UnboundedSender<Event>,
    /// Completed when the first text begins, or when the request fails before that.
    begun: oneshot::Sender<()>,
    since: Instant,
}

/// Events while texts are written.
#[derive(Debug)]
pub(crate) enum Event {
    /// Writing begins; the number of tokens of all prompts together.
    Begun(usize),
    /// A piece of the text after this prompt.
    Piece(usize, String),
    /// That text is complete.
    Ended(usize, Finish),
    /// The last event: writing failed.
    Failed(Failure),
}

/// A request to continue prompts.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) prompts: Vec<Prompt>,
    /// The most tokens of each; `None` for as many as there is room for.
    pub(crate) count: Option<usize>,
    pub(crate) style: Style,
}

/// The most tokens if a request does not give a limit, since memory for all of them is reserved at once.
const MOST: usize = 2048;

impl Desk {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The request that has waited the longest, if its client is still there.
    fn next(&self) -> Option<Ticket> {
        let mut line = self.line();
        std::iter::from_fn(|| line.waiting.pop_front()).find(|ticket| !ticket.begun.is_closed())
    }

    fn is_empty(&self) -> bool {
        self.line().waiting.is_empty()
    }

    /// Lets the thread end, unless a request waits for it.
    fn close(&self) -> bool {
        let mut line = self.line();
        line.is_open = !line.waiting.is_empty();
        !line.is_open
    }
}

impl Service {
    /// The model as one that generates text.
    pub(crate) fn language(&self) -> Option<&dyn Language> {
        self.model.language()
    }

    /// Starts writing texts once there is a place for the first of them. Dropping the receiver ends them with the next
    /// token.
    ///
    /// # Errors
    /// A full queue, a request that waited for too long, or a system that cannot create a thread.
    pub(crate) async fn write(self: &Arc<Self>, order: Order) -> Result<mpsc::UnboundedReceiver<Event>, Failure> {
        let since = Instant::now();
        let events = self.begun(order, since).await;
        events.inspect_err(|failure| {
            self.refused(failure);
            let is_late = failure.reason == Reason::Late;
            self.statistics.late.fetch_add(u64::from(is_late), Ordering::Relaxed);
            self.statistics.fail.add(since.elapsed());
        })
    }

    async fn begun(self: &Arc<Self>, order: Order, since: Instant) -> Result<mpsc::UnboundedReceiver<Event>, Failure> {
        // Unbounded, so that a client that reads slowly does not block the model: texts are short.
        let (events, receiver) = mpsc::unbounded_channel();
        let (begun, has_begun) = oneshot::channel();
        self.line_up(Ticket {
            order,
            events,
            begun,
            since,
        })?;
        // If a panic drops the ticket, its events end, too.
        let Some(patience) = self.settings.timeout else {
            let _ = has_begun.await;
            return Ok(receiver);
        };
        let waited = tokio::time::timeout(patience, has_begun).await;
        waited.map(|_| receiver).map_err(|_| {
            let message = format!(
                "the request waited for {} s, which is the model's limit: come again when fewer wait",
                patience.as_secs_f64()
            );
            Failure::new(Reason::Late, message)
        })
    }

    /// Queues a request, and starts the writing thread if it is not running.
    fn line_up(self: &Arc<Self>, ticket: Ticket) -> Result<(), Failure> {
        let busy = |message| Failure::new(Reason::Busy(Duration::from_secs(1)), message);
        let mut line = self.desk.line();
        line.waiting.retain(|ticket| !ticket.begun.is_closed());
        let waiting = line.waiting.len();
        if waiting >= self.settings.max_queue {
            return Err(busy(format!(
                "{waiting} requests wait for this model, which is its limit"
            )));
        }
        if !line.is_open {
            let own = Arc::clone(self);
            let builder = thread::Builder::new().name("writer".to_owned());
            builder
                .spawn(move || own.write_all())
                .map_err(|e| busy(format!("no thread could be started: {e}")))?;
            line.is_open = true;
        }
        line.waiting.push_back(ticket);
        Ok(())
    }

    /// Writes until nothing is left to write.
    fn write_all(&self) {
        loop {
            // A panic fails the texts in progress, but not those that wait.
            let _ = catch_unwind(AssertUnwindSafe(|| self.write_batch()));
            if self.desk.close() {
                return;
            }
        }
    }

    /// Writes the waiting texts, and those that arrive meanwhile.
    fn write_batch(&self) {
        let mut batch = Batch {
            service: self,
            orders: Vec::new(),
        };
        // Removed from the queue first, so that a request that panics is not retried.
        let Some(first) = self.desk.next() else { return };
        batch.open(first);
        let begun = match self.language() {
            Some(language) => language.begin().map_err(|error| Failure::of_run(&error)),
            None => Err(Failure::invalid("this model writes no texts")),
        };
        let mut desk = match begun {
            Ok(desk) => desk,
            Err(failure) => return batch.fail(&failure),
        };
        loop {
            batch.admit(&mut *desk);
            match desk.step() {
                Ok(pieces) => pieces.into_iter().for_each(|(text, piece)| batch.pass_on(text, piece)),
                Err(error) => return batch.fail(&Failure::of_run(&error)),
            }
            batch.clear(&mut *desk);
            if batch.orders.is_empty() && self.desk.is_empty() {
                return;
            }
        }
    }
}

/// Requests with texts in progress, the oldest first.
struct Batch<'a> {
    service: &'a Service,
    orders: Vec<Open>,
}

struct Open {
    events: mpsc::UnboundedSender<Event>,
    /// Taken when the first text begins.
    begun: Option<oneshot::Sender<()>>,
    since: Instant,
    style: Style,
    /// The tokens of each prompt, and how many tokens to write after it.
    prompts: Vec<(Vec<i64>, usize)>,
    /// The number of prompts whose texts have begun.
    next: usize,
    /// Pairs of a prompt's index and the number of its text.
    written: Vec<(usize, usize)>,
    /// The final event, sent once the request has been counted.
    last: Option<Event>,
}

impl Batch<'_> {
    /// Fills free places with waiting texts. The next text is from the request with the fewest texts in progress, and
    /// among those from the oldest. So a request with many prompts does not delay others.
    fn admit(&mut self, desk: &mut dyn Writing) {
        let places = self.service.settings.max_batch_size.max(1);
        loop {
            let taken: usize = self.orders.iter().map(|order| order.written.len()).sum();
            if taken >= places {
                return;
            }
            let rest = self.orders.iter_mut().filter(|order| order.has_more());
            let fewest = rest.min_by_key(|order| order.written.len());
            let all_have = fewest.as_ref().is_none_or(|order| !order.written.is_empty());
            if all_have && let Some(ticket) = self.service.desk.next() {
                self.open(ticket);
                continue;
            }
            let Some(order) = fewest else { return };
            if !order.begin_next(desk, taken == 0) {
                return;
            }
        }
    }

    /// Reads the prompts of a request.
    fn open(&mut self, ticket: Ticket) {
        let prompts = match self.service.language() {
            Some(language) => read(&ticket.order, language),
            None => Ok(Vec::new()),
        };
        let (prompts, last) = match prompts {
            Ok(prompts) => (prompts, None),
            Err(failure) => (Vec::new(), Some(Event::Failed(failure))),
        };
        self.orders.push(Open {
            events: ticket.events,
            begun: Some(ticket.begun),
            since: ticket.since,
            style: ticket.order.style,
            prompts,
            next: 0,
            written: Vec::new(),
            last,
        });
    }

    /// Passes on the addition to a text.
    fn pass_on(&mut self, text: usize, piece: polygrad_core::Result<Piece>) {
        let owns = |order: &&mut Open| order.written.iter().any(|&(_, own)| own == text);
        if let Some(order) = self.orders.iter_mut().find(owns) {
            order.pass_on(text, piece);
        }
    }

    /// Ends requests whose texts are complete, that have failed, or whose clients are gone.
    fn clear(&mut self, desk: &mut dyn Writing) {
        for order in std::mem::take(&mut self.orders) {
            if !order.is_over() {
                self.orders.push(order);
                continue;
            }
            order.written.iter().for_each(|&(_, text)| desk.leave(text));
            self.end(order);
        }
    }

    /// Fails all requests with texts in progress.
    fn fail(&mut self, failure: &Failure) {
        for mut order in std::mem::take(&mut self.orders) {
            order.last.get_or_insert_with(|| Event::Failed(failure.clone()));
            self.end(order);
        }
    }

    fn end(&self, mut order: Open) {
        order.begin();
        let statistics = &self.service.statistics;
        // Counted before the client can query the statistics.
        match &order.last {
            _ if order.events.is_closed() => drop(statistics.cancelled.fetch_add(1, Ordering::Relaxed)),
            Some(Event::Failed(_)) => statistics.fail.add(order.since.elapsed()),
            _ => statistics.answered(order.since.elapsed()),
        }
        if let Some(last) = order.last {
            // The client may have gone.
            let _ = order.events.send(last);
        }
    }
}

impl Open {
    fn has_more(&self) -> bool {
        self.next < self.prompts.len() && !self.is_over()
    }

    fn is_over(&self) -> bool {
        let is_complete = self.next == self.prompts.len() && self.written.is_empty();
        is_complete || self.last.is_some() || self.events.is_closed()
    }

    /// Tells the client that the first text begins. Does nothing afterwards.
    fn begin(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let _ = begun.send(());
        if !matches!(self.last, Some(Event::Failed(_))) {
            let tokens = self.prompts.iter().map(|(prompt, _)| prompt.len()).sum();
            let _ = self.events.send(Event::Begun(tokens));
        }
    }

    /// Begins the next text. Returns false if there is no memory for it until another text ends.
    fn begin_next(&mut self, desk: &mut dyn Writing, is_first: bool) -> bool {
        let Some((prompt, count)) = self.prompts.get(self.next) else {
            return true;
        };
        let mut joined = None;
        if *count > 0 {
            if !is_first && !desk.has_room(prompt.len().saturating_add(*count)) {
                return false;
            }
            match desk.join(prompt, *count, &self.style) {
                Ok(text) => joined = Some(text),
                Err(error) => {
                    self.last = Some(Event::Failed(Failure::of_run(&error)));
                    return true;
                }
            }
        }
        self.begin();
        let number = self.next;
        self.next += 1;
        match joined {
            Some(text) => self.written.push((number, text)),
            None => self.ended(
                number,
                Finish {
                    tokens: 0,
                    is_stop: false,
                },
            ),
        }
        true
    }

    fn pass_on(&mut self, text: usize, piece: polygrad_core::Result<Piece>) {
        let Some(at) = self.written.iter().position(|&(_, own)| own == text) else {
            return;
        };
        let (number, _) = self.written[at];
        match piece {
            Ok(piece) => {
                if !piece.text.is_empty() {
                    let _ = self.events.send(Event::Piece(number, piece.text));
                }
                if let Some(finish) = piece.finish {
                    self.written.remove(at);
                    self.ended(number, finish);
                }
            }
            Err(error) => {
                self.written.remove(at);
                self.last = Some(Event::Failed(Failure::of_run(&error)));
            }
        }
    }

    fn ended(&mut self, number: usize, finish: Finish) {
        let event = Event::Ended(number, finish);
        match self.is_over() {
            true => self.last = Some(event),
            false => drop(self.events.send(event)),
        }
    }
}

/// The tokens of a request's prompts, and how many tokens to write after each.
fn read(order: &Order, language: &dyn Language) -> Result<Vec<(Vec<i64>, usize)>, Failure> {
    let prompt = |prompt| {
        let prompt = language.tokens(prompt).map_err(|error| Failure::of_run(&error))?;
        let count = room(&prompt, order.count, language.positions())?;
        Ok((prompt, count))
    };
    order.prompts.iter().map(prompt).collect()
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
