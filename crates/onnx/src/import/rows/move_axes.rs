//! Ops that move, slice, join and select along axes.

use super::Found;
use super::rules::{OVER_ROWS, Seen};
use super::state::{Place, Reason, State};
use crate::import::call::{Call, axes, axis};

impl Seen<'_> {
    /// The states of the results of an op that moves elements; `None` for other ops.
    pub(super) fn moved(&self, c: &Call<'_>) -> Found<Option<Vec<State>>> {
        Ok(Some(match self.op() {
            "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => vec![self.reshaped()?],
            "Transpose" => {
                let (place, rank) = (self.place(0)?, self.rank(0)?);
                let axis = match c.int_list("perm")? {
                    Some(list) => axes(list, rank)?.iter().position(|&from| from == place.axis),
                    None => Some(rank - 1 - place.axis),
                };
                vec![self.at(
                    0,
                    Place {
                        axis: axis.ok_or(OVER_ROWS)?,
                        ..place
                    },
                )?]
            }
            op if op.starts_with("Reduce") => vec![self.reduced(c)?],
            "ArgMax" | "ArgMin" => {
                let along = c.axis("axis", 0, self.rank(0)?)?;
                vec![self.without(&[along], c.flag("keepdims", true)?)?]
            }
            "Concat" => vec![self.joined(c)?],
            "Split" => {
                self.only(&[0])?;
                self.parts(c.axis("axis", 0, self.rank(0)?)?)?
            }
            "Slice" => vec![self.cut(c)?],
            "Pad" => vec![self.padded(c)?],
            "Expand" => {
                self.only(&[0])?;
                let place = self.place(0)?;
                let axis = place.axis + self.result(0)?.len() - self.rank(0)?;
                vec![self.at(0, Place { axis, ..place })?]
            }
            "Tile" => {
                self.only(&[0])?;
                let place = self.place(0)?;
                match c.version >= 6 && c.ints(1)?.get(place.axis) == Some(&1) {
                    true => vec![self.at(0, place)?],
                    false => return Err(OVER_ROWS),
                }
            }
            "OneHot" => {
                self.only(&[0])?;
                let (place, rank) = (self.place(0)?, self.rank(0)?);
                let new = axis(c.int("axis", -1)?, rank + 1)?;
                let axis = place.axis + usize::from(new <= place.axis);
                vec![self.at(0, Place { axis, ..place })?]
            }
            "Gather" => vec![self.gathered(c)?],
            "GatherElements" | "ScatterElements" | "Scatter" => vec![self.in_step(c)?],
            "GatherND" => vec![self.gathered_by_lists(c)?],
            "ReverseSequence" => {
                let (place, along) = (self.place(0)?, c.axis("batch_axis", 1, self.rank(0)?)?);
                let lengths = self.find(1)?;
                let is_apart = place.axis == along && lengths == Some(Place { axis: 0, ..place });
                vec![if is_apart {
                    self.at(0, place)?
                } else {
                    return Err(OVER_ROWS);
                }]
            }
            "Resize" | "Upsample" => vec![self.resized(c)?],
            _ => return Ok(None),
        }))
    }

    /// The order of elements stays.
    fn reshaped(&self) -> Found {
        if self.is_free(0) {
            return Err(Reason::Here(
                "gives a shape by how many rows there are to what is the same for all",
            ));
        }
        let State::Rows { below } = self.states[0] else {
            return Err(OVER_ROWS);
        };
        if matches!(self.states.get(1), Some(State::Rows { .. })) {
            return Err(Reason::Here("takes rows for a shape"));
        }
        let place = Place::of(&self.result(0)?, below, self.rows);
        self.at(
            0,
            place.ok_or(Reason::Here("puts parts of several rows into one place"))?,
        )
    }

    /// The state of a result without some axes, or with extent 1 there.
    fn without(&self, along: &[usize], keeps: bool) -> Found {
        let place = self.place(0)?;
        if along.contains(&place.axis) {
            return Err(OVER_ROWS);
        }
        let before = along.iter().filter(|&&axis| axis < place.axis).count();
        let axis = place.axis - if keeps { 0 } else { before };
        self.at(0, Place { axis, ..place })
    }

    fn reduced(&self, c: &Call<'_>) -> Found {
        self.only(&[0])?;
        let rank = self.rank(0)?;
        let list = c.ints_either(1, "axes")?.unwrap_or_default();
        let keeps = c.flag("keepdims", true)?;
        if !list.is_empty() {
            return self.without(&axes(&list, rank)?, keeps);
        }
        match c.flag("noop_with_empty_axes", false)? {
            true => self.without(&[], true),
            false => Err(OVER_ROWS),
        }
    }

    fn joined(&self, c: &Call<'_>) -> Found {
        let along = c.axis("axis", 0, self.rank(0)?)?;
        let place = self.place(0)?;
        for i in 1..self.states.len() {
            if self.find(i)? != Some(place) {
                return Err(Reason::Here("puts rows beside what has none"));
            }
        }
        match along == place.axis {
            true => Err(Reason::Here("puts rows beside rows, along their axis")),
            false => self.at(0, place),
        }
    }

    /// All results have the state of operand 0, of which each is a part along an axis.
    fn parts(&self, along: usize) -> Found<Vec<State>> {
        let place = self.place(0)?;
        if along == place.axis {
            return Err(Reason::Here("chooses among rows"));
        }
        (0..self.results.len()).map(|i| self.at(i, place)).collect()
    }

    fn cut(&self, c: &Call<'_>) -> Found {
        self.only(&[0])?;
        let (place, rank) = (self.place(0)?, self.rank(0)?);
        let old = |name| Ok::<_, Reason>(c.int_list(name)?.map(<[i64]>::to_vec));
        let new = |i| Ok::<_, Reason>(c.opt_ints(i)?.map(|list| list.to_vec()));
        let [starts, ends, which, steps] = match c.version < 10 {
            true => [old("starts")?, old("ends")?, old("axes")?, None],
            false => [new(1)?, new(2)?, new(3)?, new(4)?],
        };
        let (starts, ends) = (starts.unwrap_or_default(), ends.unwrap_or_default());
        let which = which.unwrap_or_else(|| (0..starts.len() as i64).collect());
        for (i, along) in axes(&which, rank)?.into_iter().enumerate() {
            // The end is past that of any tensor.
            let is_whole =
                starts[i] == 0 && ends[i] >= i64::from(i32::MAX) && steps.as_ref().is_none_or(|steps| steps[i] == 1);
            if along == place.axis && !is_whole {
                return Err(Reason::Here("chooses among rows"));
            }
        }
        self.at(0, place)
    }

    fn padded(&self, c: &Call<'_>) -> Found {
        self.only(&[0])?;
        let (place, rank) = (self.place(0)?, self.rank(0)?);
        let list = match c.version < 11 {
            true => c.int_list("pads")?.map(<[i64]>::to_vec),
            false => c.opt_ints(1)?.map(|list| list.to_vec()),
        };
        let list = list.unwrap_or_default();
        let which = match c.opt_ints(3)? {
            Some(which) => axes(&which, rank)?,
            None => (0..rank).collect(),
        };
        for (i, along) in which.iter().enumerate() {
            if *along == place.axis && (list[i], list[i + which.len()]) != (0, 0) {
                return Err(Reason::Here("puts something before or behind the rows"));
            }
        }
        self.at(0, place)
    }

    fn gathered(&self, c: &Call<'_>) -> Found {
        let rank = self.rank(0)?;
        let along = c.axis("axis", 0, rank)?;
        match (self.find(0)?, self.find(1)?) {
            (Some(place), None) if place.axis == along => Err(Reason::Here("chooses among rows")),
            (Some(place), None) => {
                let axis = match place.axis < along {
                    true => place.axis,
                    false => place.axis + self.rank(1)? - 1,
                };
                self.at(0, Place { axis, ..place })
            }
            (None, Some(place)) => {
                let axis = along + place.axis;
                self.at(0, Place { axis, ..place })
            }
            _ => Err(Reason::Here("chooses among rows by what is in rows")),
        }
    }

    /// Operands that have the rows along the same axis, which must not be the axis of the selection.
    fn in_step(&self, c: &Call<'_>) -> Found {
        let along = c.axis("axis", 0, self.rank(0)?)?;
        let (place, extents) = (self.place(0)?, self.dims(0)?);
        for i in 0..self.states.len() {
            if self.find(i)? != Some(place) || self.dims(i)?[place.axis] != extents[place.axis] {
                return Err(Reason::Here("chooses among rows by what is in rows"));
            }
        }
        match along == place.axis {
            true => Err(Reason::Here("chooses among rows")),
            false => self.at(0, place),
        }
    }

    fn gathered_by_lists(&self, c: &Call<'_>) -> Found {
        let batch = c.count("batch_dims", 0)?;
        let last = self.rank(1)? - 1;
        match (self.find(0)?, self.find(1)?) {
            // A table without rows, indexed by lists.
            (None, Some(place)) if place.axis < last => self.at(0, place),
            (Some(place), Some(lists)) if place == lists && place.axis < batch => self.at(0, place),
            _ => Err(Reason::Here("chooses among rows")),
        }
    }

    fn resized(&self, c: &Call<'_>) -> Found {
        let place = self.place(0)?;
        let which = match c.int_list("axes")? {
            Some(list) => axes(list, self.rank(0)?)?,
            None => (0..self.rank(0)?).collect(),
        };
        let old = c.version < 11 || self.op() == "Upsample";
        let scales: Vec<f64> = match (old, c.float_list("scales")?) {
            (true, Some(list)) => list.iter().map(|&scale| f64::from(scale)).collect(),
            (true, None) if c.has(1) => c.floats(1)?,
            (false, _) if c.has(2) => c.floats(2)?,
            _ => Vec::new(),
        };
        let is_count = !old && self.is_count_of_rows(3, place.axis);
        let mut others = (1..self.states.len()).filter(|&i| !(i == 3 && is_count));
        if !others.all(|i| self.is_free(i)) {
            return Err(OVER_ROWS);
        }
        let plain = c.text("coordinate_transformation_mode", "half_pixel")? != "tf_crop_and_resize"
            && c.text("keep_aspect_ratio_policy", "stretch")? == "stretch";
        let is_kept = match which.iter().position(|&axis| axis == place.axis) {
            None => true,
            Some(at) if !scales.is_empty() => scales.get(at) == Some(&1.0),
            Some(_) => is_count,
        };
        match plain && is_kept {
            true => self.at(0, place),
            false => Err(Reason::Here("resizes the rows")),
        }
    }
}
