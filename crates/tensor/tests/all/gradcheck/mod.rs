//! First and second derivatives of every differentiable op, against finite differences.

mod case;
mod elementwise;
mod fused;
mod movement;
mod no_gradient;
mod reduce;
mod rules;
mod window;

#[test]
fn elementwise() {
    elementwise::cases().check();
}

#[test]
fn reduce() {
    reduce::cases().check();
}

#[test]
fn movement() {
    movement::cases().check();
}

#[test]
fn window() {
    window::cases().check();
}

#[test]
fn fused() {
    fused::cases().check();
}
