//! Rows for the model of a file: from arrays, a table, or a folder of images.

use std::path::Path;

use polygrad::backend::{DType, HostTensor, printable};
use polygrad::data::{CsvConfig, Table, TableEncoder};
use polygrad::formats::TensorFile;
use polygrad::{Device, Shape, Tensor};
use polygrad_onnx::graph::{Body, Dim, Graph, TensorType, ValueType};

use super::arrays;
use crate::data::{files, folder};
use crate::failure::{Failure, Result, Shown};
use crate::images::config::Input;
use crate::images::loaders;
use crate::table::unfit;

/// The names of the targets in arrays and columns.
pub(super) const TARGETS: &str = "`labels` or `targets`";
const NAMES: [&str; 2] = ["labels", "targets"];

/// Rows in a batch.
const BATCH: usize = 64;

/// Rows in memory.
pub(crate) struct Rows {
    /// A tensor for each input of the model, in order.
    inputs: Vec<HostTensor>,
    targets: Option<HostTensor>,
    device: Device,
}

/// Reads the rows of a file or a folder for a graph.
///
/// # Errors
/// Data that cannot be read, or do not fit the graph's inputs.
pub(crate) fn read(path: &Path, graph: &Graph, device: &Device) -> Result<Rows> {
    let (inputs, targets) = if path.is_dir() {
        images(path, graph, device)?
    } else if arrays::is_npz(path) {
        archive(path, graph)?
    } else {
        table(path, graph)?
    };
    let rows = Rows {
        inputs,
        targets,
        device: device.clone(),
    };
    rows.check(path)?;
    Ok(rows)
}

type Found = (Vec<HostTensor>, Option<HostTensor>);

impl Rows {
    fn check(&self, path: &Path) -> Result<()> {
        let counts = self.inputs.iter().chain(&self.targets).map(rows_of);
        let counts: Vec<usize> = counts.collect();
        match counts.first() {
            Some(&count) if count > 0 && counts.iter().all(|&other| other == count) => Ok(()),
            _ => Err(Failure::new(format!(
                "{} has {counts:?} rows in its arrays, where each row is of all of them",
                path.shown()
            ))
            .fix("give arrays with the same number of rows along their first axis, at least one")),
        }
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.inputs.first().map_or(0, rows_of)
    }

    /// The indices of at most `most` rows, spread evenly, and those of the others.
    pub(super) fn split(&self, most: usize) -> (Vec<usize>, Vec<usize>) {
        let count = self.len();
        let chosen: Vec<usize> = match most < count {
            true => (0..most).map(|i| i * count / most).collect(),
            false => (0..count).collect(),
        };
        let others = (0..count).filter(|row| chosen.binary_search(row).is_err());
        (chosen.clone(), others.collect())
    }

    /// The batches of these rows: the inputs, and the targets if they are known.
    pub(super) fn batches(&self, rows: Vec<usize>) -> impl Iterator<Item = Result<(Vec<Tensor>, Option<Tensor>)>> {
        let starts = (0..rows.len()).step_by(BATCH);
        starts.map(move |start| {
            let rows = &rows[start..rows.len().min(start + BATCH)];
            let part = |host: &HostTensor| Tensor::from_host(select(host, rows)?, &self.device);
            let inputs = self.inputs.iter().map(part).collect::<polygrad::Result<_>>()?;
            Ok((inputs, self.targets.as_ref().map(part).transpose()?))
        })
    }
}

fn rows_of(host: &HostTensor) -> usize {
    host.shape().first().copied().unwrap_or(0)
}

/// Selected rows of an array.
fn select(host: &HostTensor, rows: &[usize]) -> polygrad::Result<HostTensor> {
    let mut dims = host.shape().to_vec();
    let size = host.bytes().len() / rows_of(host).max(1);
    let mut bytes = Vec::with_capacity(size * rows.len());
    for row in rows {
        bytes.extend_from_slice(&host.bytes()[row * size..][..size]);
    }
    dims[0] = rows.len();
    HostTensor::from_bytes(host.dtype(), Shape::new(&dims)?, &bytes)
}

/// The inputs that a run needs, with their types.
fn needed(body: &Body) -> impl Iterator<Item = (&str, Option<&TensorType>)> {
    let needed = body.inputs.iter().filter(|id| body.initializer(**id).is_none());
    needed.map(|&id| {
        (
            body.name_of(id),
            body.value(id).ty.as_ref().and_then(ValueType::as_tensor),
        )
    })
}

/// The only input, if it is f32, with its extents after the first, which must be numbers.
fn only_input<'a>(graph: &'a Graph, path: &Path) -> Result<(&'a str, Vec<usize>)> {
    let inputs: Vec<_> = needed(&graph.body).collect();
    let unfit = || {
        Failure::new(format!("{} is for models with one input of f32 rows", path.shown()))
            .fix("give an .npz file with an array for each input")
    };
    let &[(name, Some(ty))] = inputs.as_slice() else {
        return Err(unfit());
    };
    let shape = ty
        .shape
        .as_deref()
        .filter(|shape| !shape.is_empty())
        .ok_or_else(unfit)?;
    let fixed = shape[1..].iter().map(|dim| match dim {
        Dim::Fixed(extent) => Ok(*extent),
        Dim::Named(_) | Dim::Unknown => Err(unfit()),
    });
    Ok((name, fixed.collect::<Result<_>>()?))
}

/// The file's metadata under a key.
pub(super) fn said<'a>(graph: &'a Graph, key: &str) -> Option<&'a str> {
    let mut metadata = graph.header.metadata.iter();
    metadata
        .find(|(known, _)| known == key)
        .map(|(_, value)| value.as_str())
}

/// Arrays named like the inputs, and one of targets.
fn archive(path: &Path, graph: &Graph) -> Result<Found> {
    let file = TensorFile::open(path)?;
    let known: Vec<&str> = file.keys().collect();
    let inputs = needed(&graph.body).map(|(name, _)| {
        let entry = arrays::entry(name);
        match known.contains(&&*entry) {
            true => Ok(file.read(&entry)?),
            false => Err(
                Failure::new(format!("{} has no array {name:?}", path.shown())).fix(format!(
                    "it has {}: rename one to the input's name",
                    printable(&known.join(", "))
                )),
            ),
        }
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    let targets = NAMES.into_iter().find(|name| known.contains(name));
    let targets = targets.map(|name| file.read(name)).transpose()?;
    // Class numbers may be integers of any width.
    let targets = targets.map(|host| match host.dtype().is_float() {
        true => host,
        false => host.cast(DType::I64),
    });
    Ok((inputs, targets))
}

/// The rows of a table in the form that the model takes according to its metadata, one row of numbers for each, without
/// targets.
///
/// # Errors
/// A file that cannot be read, or does not have the model's columns.
pub(super) fn features(path: &Path, graph: &Graph, device: &Device) -> Result<Rows> {
    let rows = Rows {
        inputs: vec![columns(path, graph)?.1],
        targets: None,
        device: device.clone(),
    };
    rows.check(path)?;
    Ok(rows)
}

/// The features of a table, and its targets.
fn table(path: &Path, graph: &Graph) -> Result<Found> {
    let (table, features) = columns(path, graph)?;
    let target = target_of(&table, graph).map(|column| target(&table, column, graph, path));
    Ok((vec![features], target.transpose()?))
}

/// The column with the targets, if there is one.
fn target_of<'a>(table: &Table, graph: &'a Graph) -> Option<&'a str> {
    let is_there = |name: &&str| table.names().iter().any(|known| known == name);
    match said(graph, "target") {
        Some(target) => Some(target).filter(is_there),
        None => NAMES.into_iter().find(is_there),
    }
}

/// A table and its features for the model: encoded by the encoder in the model's file, or the numbers in order.
fn columns(path: &Path, graph: &Graph) -> Result<(Table, HostTensor)> {
    let (name, extents) = only_input(graph, path)?;
    let table = CsvConfig::new().read(path)?;
    let encoder = said(graph, "encoder")
        .map(serde_json::from_str::<TableEncoder>)
        .transpose();
    let encoder = encoder.map_err(|e| {
        Failure::new(format!("the encoder in the model's file is damaged: {e}")).fix("export the model anew")
    })?;
    let features = match &encoder {
        Some(encoder) => encoder.encode(&table),
        None => numbers(&table, target_of(&table, graph)),
    };
    let features = features.map_err(|e| unfit(&path.shown(), &e))?;
    if features.shape()[1..] != extents[..] {
        return Err(Failure::new(format!(
            "{} has {} columns for the input {name:?}, which takes {extents:?} in each row",
            path.shown(),
            features.shape()[1]
        ))
        .fix(format!(
            "give a table with a column for each, and one of {TARGETS} beside them"
        )));
    }
    Ok((table, features))
}

fn numbers(table: &Table, target: Option<&str>) -> polygrad::Result<HostTensor> {
    let names = table.names().iter().filter(|name| Some(name.as_str()) != target);
    let columns = names
        .map(|name| table.numbers(name))
        .collect::<polygrad::Result<Vec<_>>>()?;
    let rows = (0..table.rows()).flat_map(|row| columns.iter().map(move |column| column[row] as f32));
    HostTensor::new(Shape::new(&[table.rows(), columns.len()])?, rows.collect::<Vec<f32>>())
}

/// The target column: class numbers, if the file names classes or the column is called `labels`.
fn target(table: &Table, column: &str, graph: &Graph, path: &Path) -> Result<HostTensor> {
    let (place, shape) = (path.shown(), Shape::new(&[table.rows()])?);
    let Some(classes) = said(graph, "classes") else {
        let numbers = table.numbers(column).map_err(|e| unfit(&place, &e))?;
        if column != NAMES[0] {
            return Ok(HostTensor::new(shape, numbers.to_vec())?);
        }
        let wrong = numbers.iter().position(|x| !(x.fract() == 0.0 && *x >= 0.0));
        if let Some(row) = wrong {
            return Err(Failure::new(format!(
                "{place}: the column {column:?} has {} in row {}, which is no number of a class",
                numbers[row],
                row + 1
            ))
            .fix(format!(
                "number classes from 0 on; call a column of other numbers {:?}",
                NAMES[1]
            )));
        }
        let labels = numbers.iter().map(|&x| x as i64);
        return Ok(HostTensor::new(shape, labels.collect::<Vec<_>>())?);
    };
    let classes: Vec<&str> = classes.split('\n').collect();
    let label = |cell: &str| {
        let number = cell.trim().parse::<f64>().ok();
        let same = |class: &&str| **class == *cell || number.is_some() && class.parse().ok() == number;
        classes.iter().position(same)
    };
    let cells = table.texts(column)?;
    let labels = cells.iter().enumerate().map(|(row, cell)| {
        label(cell).map(|label| label as i64).ok_or_else(|| {
            Failure::new(format!(
                "{place}: the target {column:?} is {cell:?} in row {}, no class of the model",
                row + 1
            ))
            .fix(format!("the classes are {}", printable(&classes.join(", "))))
        })
    });
    Ok(HostTensor::new(shape, labels.collect::<Result<Vec<i64>>>()?)?)
}

/// The model's form of images, if its file says it.
pub(super) fn image_input(graph: &Graph, path: &Path) -> Result<Input> {
    let (name, extents) = only_input(graph, path)?;
    let number = |key: &str| said(graph, key).and_then(|text| text.parse::<f64>().ok());
    let (&[channels, rows, cols], Some(mean), Some(std)) = (&extents[..], number("mean"), number("std")) else {
        return Err(Failure::new(format!(
            "{} holds images, and the model does not say how it takes them: it has no metadata `mean` and `std`, or \
             its input {name:?} is no image",
            path.shown()
        ))
        .fix("give an .npz file with an array for each input"));
    };
    Ok(Input {
        channels,
        rows,
        cols,
        mean,
        std,
    })
}

/// The test images of a folder, preprocessed as in training.
fn images(path: &Path, graph: &Graph, device: &Device) -> Result<Found> {
    let input = image_input(graph, path)?;
    let extents = [input.channels, input.rows, input.cols];
    let split = match files::find(path, "images") {
        Ok(files) => files.load_test()?,
        Err(_) => folder::load(path, input.rows, 0)?.test,
    };
    if split.shape != extents {
        return Err(Failure::new(format!(
            "{} holds images of {:?} (channels, rows, columns), the model takes {extents:?}",
            path.shown(),
            split.shape
        ))
        .fix("give images like those that the model was trained on"));
    }
    let (mut images, mut labels) = (Vec::new(), Vec::new());
    for batch in &loaders::evaluation(&split, &input, device)? {
        let (x, y) = batch?;
        images.extend(x.to_vec::<f32>()?);
        labels.extend(y.to_vec::<i64>()?);
    }
    let shape = Shape::new(&[&[labels.len()], &extents[..]].concat())?;
    let labels = HostTensor::new(Shape::new(&[labels.len()])?, labels)?;
    Ok((vec![HostTensor::new(shape, images)?], Some(labels)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbers_of_classes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let found = |last: &str| {
            std::fs::write(&path, format!("a,labels\n1,0\n2,{last}\n")).unwrap();
            let table = CsvConfig::new().read(&path).unwrap();
            target(&table, "labels", &Graph::default(), &path)
        };
        assert_eq!(found("3").unwrap().to_vec::<i64>().unwrap(), [0, 3]);
        for wrong in ["1.5", "-1"] {
            let error = found(wrong).unwrap_err().to_string();
            assert!(error.contains(&format!("\"labels\" has {wrong} in row 2")), "{error}");
        }
    }
}
