//! Every shader, without an adapter: it is valid, and can be translated for other systems.

use naga::back::{hlsl, msl, spv};
use naga::valid::{Capabilities, ValidationFlags, Validator};

#[test]
fn all_are_valid_and_translate() {
    let shaders = polygrad_wgpu::shaders::all().unwrap();
    assert!(shaders.len() > 1000);
    let msl_options = msl::Options {
        lang_version: (2, 4),
        fake_missing_bindings: true,
        ..Default::default()
    };
    let hlsl_options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_0,
        fake_missing_bindings: true,
        ..Default::default()
    };
    let mut wrong = Vec::new();
    for shader in &shaders {
        let module = match naga::front::wgsl::parse_str(&shader.text) {
            Ok(module) => module,
            Err(error) => {
                wrong.push(format!("{}: {}", shader.name, error.emit_to_string(&shader.text)));
                continue;
            }
        };
        let mut validator = Validator::new(ValidationFlags::all(), Capabilities::SHADER_INT64);
        let info = match validator.validate(&module) {
            Ok(info) => info,
            Err(error) => {
                wrong.push(format!("{}: {}", shader.name, error.emit_to_string(&shader.text)));
                continue;
            }
        };
        if let Err(error) = msl::write_string(&module, &info, &msl_options, &msl::PipelineOptions::default()) {
            wrong.push(format!("{} in MSL: {error}", shader.name));
        }
        let mut text = String::new();
        let pipeline = hlsl::PipelineOptions::default();
        if let Err(error) = hlsl::Writer::new(&mut text, &hlsl_options, &pipeline).write(&module, &info, None) {
            wrong.push(format!("{} in HLSL: {error}", shader.name));
        }
        if let Err(error) = spv::write_vec(&module, &info, &spv::Options::default(), None) {
            wrong.push(format!("{} in SPIR-V: {error}", shader.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        shaders.len(),
        wrong[..wrong.len().min(12)].join("\n")
    );
}
