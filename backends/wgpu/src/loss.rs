//! Cross entropy against classes. Each row's class is checked by the kernel that uses it.

use std::fmt::Write as _;

use polygrad_core::compute::CrossEntropy;
use polygrad_core::{DType, Error, Result};

use crate::gpu::Session;
use crate::index;
use crate::kernel::Kernel;
use crate::source::{Access, Slots, Source, param};
use crate::state::Place;
use crate::team::{THREADS, Team};

/// The direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Pass {
    /// Losses and each row's `ln Σ e^x`, with a team per row.
    Forward(Team),
    /// The gradient wrt the logits, with a thread per element.
    Backward,
}

/// The properties that the shader depends on. Operands are the logits, the classes and the word of bad classes, then
/// losses and `ln Σ e^x`, and for the gradient the gradient itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Form {
    pub(crate) pass: Pass,
    pub(crate) dtype: DType,
    /// Whether a share of the target is spread over all classes (label smoothing).
    pub(crate) smooth: bool,
}

const ROWS: usize = 0;
const COLUMNS: usize = 1;
const CALL: usize = 2;
/// The ignored class, in two words.
const IGNORED: usize = 3;
/// The share of the target for its own class, …
const KEPT: usize = 5;
/// … and the share that is spread evenly.
const SPREAD: usize = 6;
/// Offsets of the operands except the status, in their order.
const OFFSETS: usize = 7;

const STATUS: usize = 2;

impl Kernel for Form {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn accesses(&self) -> Vec<Access> {
        let mut all = vec![Access::Read, Access::Read, Access::Atomic];
        all.extend(match self.pass {
            Pass::Forward(_) => vec![Access::Write; 2],
            Pass::Backward => vec![Access::Read, Access::Read, Access::Write],
        });
        all
    }

    fn source(&self, slots: &Slots) -> Result<String> {
        let mut source = Source::new(slots);
        source.loader("x_at", 0, self.dtype);
        Ok(match self.pass {
            Pass::Forward(team) => self.forward(source, team),
            Pass::Backward => self.backward(source),
        })
    }
}

impl Form {
    /// Defines the class of `row`, whether it counts, and whether it is in range.
    fn class(source: &Source<'_>) -> String {
        let at = format!("{} + row", param(OFFSETS + 1));
        format!(
            "let index = {low};\nlet index_high = {high};\n\
             let counts = index != {ignored} || index_high != {ignored_high};\n\
             let known = index_high == 0u && index < columns;\n",
            low = source.word(1, &format!("2u * ({at})")),
            high = source.word(1, &format!("2u * ({at}) + 1u")),
            ignored = param(IGNORED),
            ignored_high = param(IGNORED + 1),
        )
    }

    fn forward(self, mut source: Source<'_>, team: Team) -> String {
        source.share("all", "f32", THREADS);
        source.storer("loss_set", 3, DType::F32);
        source.storer("logsumexp_set", 4, DType::F32);
        let mut body = team.head(ROWS);
        let _ = writeln!(
            body,
            "let columns = {};\nlet x0 = {} + row * columns;\nvar top = -f_inf();",
            param(COLUMNS),
            param(OFFSETS)
        );
        let each = |body: &mut String, statement: &str| {
            let _ = writeln!(
                body,
                "for (var i = me; i < columns; i = i + {}u) {{ {statement} }}",
                team.step()
            );
        };
        each(&mut body, "top = f_max(top, x_at(x0 + i));");
        team.fold(&mut body, "all", "top", "most", "f_max($a, $b)");
        body.push_str("var sum = 0.0;\n");
        each(&mut body, "sum = sum + p_exp(x_at(x0 + i) - most);");
        team.fold(&mut body, "all", "sum", "total", "$a + $b");
        if self.smooth {
            body.push_str("var below = 0.0;\n");
            each(&mut body, "below = below + opaque(most - x_at(x0 + i));");
            team.fold(&mut body, "all", "below", "all_below", "$a + $b");
        }
        // All threads of a team see the same class, and there is no barrier after this.
        let _ = writeln!(
            body,
            "if (me != 0u) {{ return; }}\nlet log_total = p_log(total);\nlogsumexp_set({} + row, most + log_total);\n{}\
             var loss = 0.0;\nif (counts) {{\nif (!known) {{ {} return; }}\n\
             loss = log_total + opaque(most - x_at(x0 + index));",
            param(OFFSETS + 3),
            Self::class(&source),
            index::report(&source, STATUS, "index", "index_high", &param(CALL)),
        );
        if self.smooth {
            let _ = writeln!(
                body,
                "loss = opaque({} * loss) + opaque({} * (log_total + p_div(all_below, f32(columns))));",
                number(KEPT),
                number(SPREAD)
            );
        }
        let _ = writeln!(body, "}}\nloss_set({} + row, loss);", param(OFFSETS + 2));
        source.finish(THREADS as u32, &body)
    }

    fn backward(self, mut source: Source<'_>) -> String {
        source.loader("grad_at", 3, self.dtype);
        source.loader("logsumexp_at", 4, self.dtype);
        source.storer("y_set", 5, DType::F32);
        let mut body = format!(
            "let at = wg * {THREADS}u + lane;\nlet columns = {columns};\nlet row = at / columns;\n\
             if (row >= {rows}) {{ return; }}\nlet column = at % columns;\n{class}\
             if (counts && !known) {{\nif (column == 0u) {{ {report} }}\nreturn;\n}}\n\
             let grad = select(0.0, grad_at({grads} + row), counts);\n\
             var share = p_exp(x_at({logits} + at) - logsumexp_at({saved} + row));\n",
            columns = param(COLUMNS),
            rows = param(ROWS),
            class = Self::class(&source),
            report = index::report(&source, STATUS, "index", "index_high", &param(CALL)),
            logits = param(OFFSETS),
            grads = param(OFFSETS + 2),
            saved = param(OFFSETS + 3),
        );
        if self.smooth {
            let _ = writeln!(body, "share = opaque(share - p_div({}, f32(columns)));", number(SPREAD));
        }
        let _ = writeln!(
            body,
            "if (counts && column == index) {{ share = opaque(share - {}); }}\ny_set({} + at, share * grad);",
            number(KEPT),
            param(OFFSETS + 4)
        );
        source.finish(THREADS as u32, &body)
    }
}

fn number(i: usize) -> String {
    format!("bitcast<f32>({})", param(i))
}

impl Session<'_> {
    pub(crate) fn cross_entropy(&mut self, call: &CrossEntropy) -> Result<()> {
        self.floats(call.dtype)?;
        if call.rows == 0 {
            return Ok(());
        }
        if call.columns == 0 {
            return Err(Error::invalid("rows of no classes"));
        }
        let (logits, classes) = self.classified(call)?;
        let targets = [
            self.words_for(call.loss, call.rows, call.dtype)?,
            self.words_for(call.logsumexp, call.rows, call.dtype)?,
        ];
        let size = call.dtype.size();
        let operands = [
            (&logits, size),
            (&classes, DType::I64.size()),
            (&targets[0].place, 4),
            (&targets[1].place, 4),
        ];
        let team = Team::choose(call.columns);
        self.launch_loss(
            "cross_entropy",
            call,
            Pass::Forward(team),
            &operands,
            team.groups(call.rows),
        )?;
        targets.iter().try_for_each(|target| self.finish(target))
    }

    pub(crate) fn cross_entropy_backward(&mut self, call: &CrossEntropy) -> Result<()> {
        self.floats(call.dtype)?;
        if call.rows == 0 || call.columns == 0 {
            return Ok(());
        }
        let (logits, classes) = self.classified(call)?;
        let (dtype, size) = (call.dtype, call.dtype.size());
        let grads = self.typed(call.loss, call.rows * size, dtype)?;
        let logsumexp = self.typed(call.logsumexp, call.rows * size, dtype)?;
        let len = call.rows * call.columns;
        let target = self.words_for(call.grad, len, dtype)?;
        let operands = [
            (&logits, size),
            (&classes, DType::I64.size()),
            (&grads, size),
            (&logsumexp, size),
            (&target.place, 4),
        ];
        let groups = (len as u64).div_ceil(THREADS as u64);
        self.launch_loss("cross_entropy_backward", call, Pass::Backward, &operands, groups)?;
        self.finish(&target)
    }

    fn classified(&self, call: &CrossEntropy) -> Result<(Place, Place)> {
        let len = call.rows.saturating_mul(call.columns);
        self.countable(len)?;
        Ok((
            self.typed(call.logits, len * call.dtype.size(), call.dtype)?,
            self.typed(call.target, call.rows * DType::I64.size(), DType::I64)?,
        ))
    }

    /// Operands are passed with the sizes of their elements, and without the status.
    fn launch_loss(
        &mut self,
        op: &'static str,
        call: &CrossEntropy,
        pass: Pass,
        operands: &[(&Place, usize)],
        groups: u64,
    ) -> Result<()> {
        let (status, number) = self.checked(op, call.columns);
        let ignored = call.params.ignore_index.cast_unsigned();
        let smoothing = call.params.label_smoothing;
        let mut params = vec![
            call.rows as u32,
            call.columns as u32,
            number,
            ignored as u32,
            (ignored >> 32) as u32,
            ((1.0 - smoothing) as f32).to_bits(),
            (smoothing as f32).to_bits(),
        ];
        params.extend(operands.iter().map(|(place, size)| (place.at / size) as u32));
        let mut places: Vec<&Place> = operands.iter().map(|&(place, _)| place).collect();
        places.insert(STATUS, &status);
        let form = Form {
            pass,
            dtype: call.dtype,
            smooth: smoothing > 0.0,
        };
        self.launch(Box::new(form), &places, &params, [groups, 1])
    }
}
