//! Drawing of a dashboard.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::{Marker, line};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, LineGauge};

use polygrad_core::printable;

use super::state::State;
use crate::progress_bar::{clock, grouped, of};
use crate::{Row, Split};

const TRAIN: Color = Color::Cyan;
const JUDGED: Color = Color::Yellow;
const FAINT: Style = Style::new().fg(Color::DarkGray);

/// Least height and width of a chart.
const CHART: (u16, u16) = (7, 36);

/// The most notices shown.
const NOTICES: usize = 3;

/// Fills the frame, whatever its size, leaving out the least important parts first.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    let mut lines = lines(state);
    // One line is reserved for the bar.
    while lines.len() > usize::from(area.height).saturating_sub(1) {
        let least = lines.iter().enumerate().max_by_key(|(_, (rank, _))| *rank);
        let Some((at, _)) = least else { break };
        lines.remove(at);
    }
    let below = lines.len().saturating_sub(1) as u16;
    let rest = area.height.saturating_sub(below + 2);
    let charts = if rest < CHART.0 { 0 } else { rest };
    let parts = [1, 1, charts, below].map(Constraint::Length);
    let [title, bar, charts, below] = Layout::vertical(parts).areas(area);
    let mut lines = lines.into_iter().map(|(_, line)| line);
    if let Some(line) = lines.next() {
        frame.render_widget(line, title);
    }
    if bar.height > 0 {
        frame.render_widget(gauge(state), bar);
    }
    draw_charts(frame, charts, state);
    for (line, row) in lines.zip(below.rows()) {
        frame.render_widget(line, row);
    }
}

/// Lines with their ranks; 0 is the most important.
fn lines(state: &State) -> Vec<(u8, Line<'static>)> {
    let mut place = match state.now.epoch {
        0 => String::new(),
        epoch => format!("epoch {epoch}{}  ", of(state.now.epochs)),
    };
    place += &format!("step {}{}", grouped(state.now.step), of(state.now.steps.map(grouped)));
    let title = Span::styled(
        printable(&state.title).into_owned(),
        Style::new().add_modifier(Modifier::BOLD),
    );
    let keys = match state.stopping {
        true => Line::styled(
            "stopping after this step; Ctrl-C stops at once",
            Style::new().fg(Color::Red),
        ),
        false => Line::styled("q stops, with a checkpoint", FAINT),
    };
    let since = state.now.told.elapsed().as_secs_f64();
    let left = state
        .now
        .seconds_left
        .map(|left| format!("  {} left", clock((left - since).max(0.0))));
    let time = format!(
        "{} so far{}",
        clock(state.now.seconds + since),
        left.unwrap_or_default()
    );
    let memory = state
        .memory
        .map(|bytes| format!("  memory {} MB", grouped(bytes / 1_000_000)));
    let rate = format!(
        "{} {}/s  learning rate {:.3e}{}",
        grouped(state.now.examples_per_second as u64),
        state.now.unit,
        state.now.learning_rate,
        memory.unwrap_or_default()
    );
    let share = |seconds: f64| {
        format!(
            "{:.0} %",
            100.0 * (seconds / state.now.elapsed.max(1e-9)).clamp(0.0, 1.0)
        )
    };
    let rest = state.now.elapsed - state.now.stepping - state.now.loading - state.now.evaluating;
    let split = format!(
        "steps {}  data {}  evaluation {}  rest {}",
        share(state.now.stepping),
        share(state.now.loading),
        share(state.now.evaluating),
        share(rest)
    );
    let figures = |name: &str, figures: &str, colour: Color| {
        Line::from(vec![
            Span::styled(format!("{name} "), Style::new().fg(colour)),
            Span::raw(figures.to_owned()),
        ])
    };
    let mut lines = vec![
        (0, Line::from(vec![Span::raw(place), Span::raw("  "), title])),
        (1, figures("train", &state.now.train, TRAIN)),
    ];
    let judged = state.judged.as_deref();
    lines.extend(judged.map(|judged| (4, figures(&printable(&state.validation), judged, JUDGED))));
    lines.extend([(2, Line::from(time)), (5, Line::from(rate)), (6, Line::from(split))]);
    for notice in state.notices.iter().rev().take(NOTICES).rev() {
        let text = printable(notice).into_owned();
        lines.push((7, Line::styled(text, Style::new().fg(Color::Magenta))));
    }
    lines.push((3, keys));
    lines
}

fn gauge(state: &State) -> LineGauge<'static> {
    let ratio = match state.now.steps {
        Some(steps) if steps > 0 => (state.now.step as f64 / steps as f64).clamp(0.0, 1.0),
        _ => 0.0,
    };
    LineGauge::default()
        .ratio(ratio)
        .filled_symbol(line::THICK_HORIZONTAL)
        .unfilled_symbol(line::HORIZONTAL)
        .filled_style(Style::new().fg(Color::Green))
        .unfilled_style(FAINT)
}

/// Selects a chart's value from a row.
type Value = Box<dyn Fn(&Row) -> f64>;

/// Draws the loss and as many metrics as fit, side by side.
fn draw_charts(frame: &mut Frame<'_>, area: Rect, state: &State) {
    if area.height == 0 {
        return;
    }
    let mut charts: Vec<(&str, Value)> = vec![("loss", Box::new(|row: &Row| row.loss))];
    charts.extend(state.metrics.iter().enumerate().map(|(i, name)| {
        let value: Value = Box::new(move |row| row.metrics.get(i).copied().unwrap_or(f64::NAN));
        (name.as_str(), value)
    }));
    charts.truncate(usize::from(area.width / CHART.1).max(1));
    let places = Layout::horizontal(vec![Constraint::Fill(1); charts.len()]).split(area);
    for ((name, value), place) in charts.iter().zip(places.iter()) {
        draw_chart(frame, *place, state, name, value);
    }
}

fn draw_chart(frame: &mut Frame<'_>, area: Rect, state: &State, name: &str, value: &Value) {
    let most = usize::from(area.width).max(8) * 2;
    let [train, judged] = [Split::Train, Split::Validation].map(|split| points(&state.rows, split, value, most));
    let all = || train.iter().chain(&judged);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let ends = all()
            .map(of)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
                (low.min(x), high.max(x))
            });
        if ends.0 > ends.1 { (0.0, 1.0) } else { ends }
    };
    let (low, high) = range(|point| point.1);
    let margin = f64::max((high - low) * 0.05, 1e-6 * high.abs().max(1e-3));
    let (_, last) = range(|point| point.0);
    let set = |points, colour| {
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(colour))
            .data(points)
    };
    let title = Line::from(vec![
        Span::raw(format!("{name} ")),
        Span::styled("train ", Style::new().fg(TRAIN)),
        Span::styled(printable(&state.validation).into_owned(), Style::new().fg(JUDGED)),
    ]);
    let chart = Chart::new(vec![set(&train, TRAIN), set(&judged, JUDGED)])
        .block(Block::bordered().border_style(FAINT).title(title))
        .x_axis(Axis::default().style(FAINT).bounds([0.0, last.max(1e-9)]).labels([
            "0".to_owned(),
            format!(
                "{} {}",
                if state.now.epoch == 0 { "step" } else { "epoch" },
                short(last)
            ),
        ]))
        .y_axis(
            Axis::default()
                .style(FAINT)
                .bounds([low - margin, high + margin])
                .labels([short(low), short(high)]),
        );
    frame.render_widget(chart, area);
}

/// Epochs and finite values. If there are more than `most` points, neighbours are averaged.
fn points(rows: &[Row], split: Split, value: &Value, most: usize) -> Vec<(f64, f64)> {
    let of_split = rows.iter().filter(|row| row.split == split);
    let points: Vec<(f64, f64)> = of_split
        .map(|row| (row.epoch, value(row)))
        .filter(|(_, value)| value.is_finite())
        .collect();
    let mean = |points: &[(f64, f64)]| {
        let n = points.len() as f64;
        let [x, y] = [
            points.iter().map(|p| p.0).sum::<f64>(),
            points.iter().map(|p| p.1 / n).sum(),
        ];
        (x / n, y)
    };
    points.chunks(points.len().div_ceil(most).max(1)).map(mean).collect()
}

/// A number with four digits.
fn short(x: f64) -> String {
    match x == 0.0 || (1e-2..1e5).contains(&x.abs()) {
        true => {
            let digits = (3 - x.abs().max(1.0).log10().floor() as i32).max(0) as usize;
            format!("{x:.digits$}")
        }
        false => format!("{x:.2e}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::Now;
    use super::*;

    fn row(step: u64, split: Split, loss: f64) -> Row {
        Row {
            step,
            epoch: step as f64 / 10.0,
            split,
            loss,
            metrics: vec![1.0 - loss, loss * 2.0],
            learning_rate: 1e-3,
            seconds: step as f64,
        }
    }

    fn state() -> State {
        let mut rows = Vec::new();
        for step in 1..=50 {
            rows.push(row(step, Split::Train, 1.0 / step as f64));
            if step % 10 == 0 {
                rows.push(row(step, Split::Validation, 1.2 / step as f64));
            }
        }
        State {
            title: "runs/houses-1".to_owned(),
            metrics: vec!["accuracy".to_owned(), "f1".to_owned()],
            validation: "validation".to_owned(),
            rows,
            notices: ["metrics.csv is gone\u{1b}[2J".to_owned()].into(),
            now: Now {
                epoch: 5,
                epochs: Some(10),
                step: 1234,
                steps: Some(2468),
                learning_rate: 0.003,
                examples_per_second: 56_789.0,
                unit: "examples".to_owned(),
                train: "loss 0.0200  accuracy 98.00 %".to_owned(),
                seconds: 61.0,
                seconds_left: Some(120.0),
                stepping: 40.0,
                loading: 10.0,
                evaluating: 20.0,
                elapsed: 80.0,
                told: Instant::now(),
            },
            judged: Some("loss 0.0240  accuracy 97.60 %".to_owned()),
            memory: Some(123_456_789),
            stopping: false,
        }
    }

    fn drawn(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let cells = terminal.backend().buffer().content();
        let line = |cells: &[ratatui::buffer::Cell]| cells.iter().map(|cell| cell.symbol()).collect::<String>();
        cells.chunks(usize::from(width).max(1)).map(line).collect()
    }

    #[test]
    fn all_is_shown_where_there_is_room() {
        let mut state = state();
        let screen = drawn(&state, 120, 30);
        let text = screen.join("\n");
        for words in [
            "epoch 5/10  step 1,234/2,468  runs/houses-1",
            "50%",
            "loss train validation",
            "accuracy train validation",
            "f1 train validation",
            "epoch 5.000",
            "train loss 0.0200  accuracy 98.00 %",
            "validation loss 0.0240  accuracy 97.60 %",
            "1:01 so far  2:00 left",
            "56,789 examples/s  learning rate 3.000e-3  memory 123 MB",
            "steps 50 %  data 12 %  evaluation 25 %  rest 12 %",
            "metrics.csv is gone\\u{1b}[2J",
            "q stops, with a checkpoint",
        ] {
            assert!(text.contains(words), "{text}\nshould contain {words}");
        }
        // The curve begins at the top left and ends at the bottom right of its chart.
        let braille = |line: &str| line.chars().take(40).any(|c| ('\u{2801}'..='\u{28ff}').contains(&c));
        assert!(screen[3..22].iter().filter(|line| braille(line)).count() > 12, "{text}");
        state.stopping = true;
        assert!(drawn(&state, 120, 30).join("\n").contains("stopping after this step"));
        state.memory = None;
        assert!(!drawn(&state, 120, 30).join("\n").contains("memory"));
    }

    #[test]
    fn what_matters_least_goes_first() {
        let state = state();
        let small = drawn(&state, 20, 5);
        assert!(small[0].starts_with("epoch 5/10  step 1,"), "{small:?}");
        assert!(small[1].contains("50% ━━━━") && small[1].contains('─'), "{small:?}");
        assert!(small[2].starts_with("train loss 0.0200"), "{small:?}");
        assert!(small[3].starts_with("1:01 so far"), "{small:?}");
        assert!(small[4].starts_with("q stops"), "{small:?}");
        let narrow = drawn(&state, 40, 20).join("\n");
        assert!(
            narrow.contains("loss train") && !narrow.contains("accuracy train"),
            "{narrow}"
        );
    }

    #[test]
    fn every_size_and_every_value_can_be_drawn() {
        let mut state = state();
        let sizes = || (0..40).flat_map(|width| (0..20).map(move |height| (width * 3, height)));
        for (width, height) in sizes() {
            drawn(&state, width, height);
        }
        for loss in [f64::NAN, f64::INFINITY, 1e300, -1e300, 0.0, 1e-300, f64::MAX] {
            state.rows.push(row(60, Split::Train, loss));
            drawn(&state, 80, 24);
            state.rows = vec![row(0, Split::Train, loss); 3];
            drawn(&state, 80, 24);
        }
        state.rows.clear();
        (state.now.steps, state.now.epochs, state.now.seconds_left, state.judged) = (None, None, None, None);
        (state.now.train, state.now.elapsed) = (String::new(), 0.0);
        assert!(drawn(&state, 80, 24)[0].starts_with("epoch 5  step 1,234  runs"));
    }

    #[test]
    fn long_curves_are_thinned() {
        let rows: Vec<Row> = (0..10_001).map(|step| row(step, Split::Train, step as f64)).collect();
        let value: Value = Box::new(|row| row.loss);
        let thin = points(&rows, Split::Train, &value, 100);
        assert!(thin.len() <= 100 && thin.len() > 90, "{}", thin.len());
        assert!(
            (thin[0].0 - 5.0).abs() < 1e-9 && (thin[0].1 - 50.0).abs() < 1e-9,
            "{:?}",
            thin[0]
        );
        assert_eq!(
            ["0.003210", "12.34", "123456"].map(|x| short(x.parse().unwrap())),
            ["3.21e-3", "12.34", "1.23e5"]
        );
    }
}
