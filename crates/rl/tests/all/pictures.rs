//! Pictures of environments.

use polygrad_reference::Reference;
use polygrad_rl::{
    Acrobot, ActorCritic, Canvas, CartPole, Colour, ConnectFour, Env, GridWorld, MountainCar, Pendulum, Render, Rng,
    zoo,
};
use polygrad_tensor::Device;

const BLACK: Colour = [0; 3];
const WHITE: Colour = [255; 3];

/// The colour of a point in the units of the environment's picture.
fn at(env: &impl Render, x: f32, y: f32) -> Colour {
    let [width, height] = env.size();
    let picture = env.picture(width as usize, height as usize);
    picture.pixels()[y as usize * picture.width() + x as usize]
}

#[test]
fn the_cart_is_where_it_is() {
    let mut env = CartPole::new();
    env.set_state([0.0; 4]);
    // As in Gymnasium: the cart's middle is 100 above the ground of the picture, and the pole is 125 long.
    assert_eq!(at(&env, 285.0, 300.0), BLACK);
    assert_eq!(at(&env, 300.0, 200.0), [202, 152, 101]);
    assert_eq!(at(&env, 300.0, 292.0), [129, 132, 203]);
    assert_eq!(at(&env, 300.0, 165.0), WHITE);
    env.set_state([1.2, 0.0, 0.2, 0.0]);
    assert_eq!(at(&env, 450.0 - 15.0, 300.0), BLACK);
    assert_eq!(at(&env, 285.0, 295.0), WHITE);
    // The pole leans to the right.
    let (sin, cos) = 0.2f32.sin_cos();
    assert_eq!(at(&env, 450.0 + 100.0 * sin, 292.5 - 100.0 * cos), [202, 152, 101]);
}

#[test]
fn links_and_rods_hang_and_stand() {
    let length = 500.0 / 4.4;
    let mut acrobot = Acrobot::new();
    acrobot.set_state([0.0; 4]);
    assert_eq!(at(&acrobot, 250.0, 250.0 + 1.5 * length), [0, 204, 204]);
    assert_eq!(at(&acrobot, 250.0, 250.0 + length), [204, 204, 0]);
    acrobot.set_state([std::f64::consts::FRAC_PI_2, std::f64::consts::FRAC_PI_2, 0.0, 0.0]);
    assert_eq!(at(&acrobot, 250.0 + length, 250.0 - 0.5 * length), [0, 204, 204]);
    let mut pendulum = Pendulum::new();
    pendulum.set_state([0.0, 0.0]);
    assert_eq!(at(&pendulum, 250.0, 250.0 - 0.9 * length), [204, 77, 77]);
    assert_eq!(at(&pendulum, 250.0, 250.0), BLACK);
    pendulum.set_state([std::f64::consts::FRAC_PI_2, 0.0]);
    assert_eq!(at(&pendulum, 250.0 - 0.9 * length, 250.0), [204, 77, 77]);
}

#[test]
fn the_car_is_on_its_mountain() {
    let mut env = MountainCar::new();
    for position in [-1.2, -0.5, 0.1, 0.5] {
        env.set_state([position, 0.0]);
        let scale = 600.0 / 1.8;
        let x = (position + 1.2) * scale;
        let ground = ((3.0 * position).sin() * 0.45 + 0.55) * scale;
        let (nx, ny) = (-(3.0 * position).cos().sin(), (3.0 * position).cos().cos());
        let (x, y) = (x + 12.0 * nx, 400.0 - ground - 10.0 - 12.0 * ny);
        if x > 0.0 {
            assert_eq!(at(&env, x as f32, y as f32), BLACK, "{position}");
        }
    }
    assert_eq!(at(&env, 572.0, 22.0), [204, 204, 0]);
}

#[test]
fn boards_show_what_is_observed() {
    let (mut rng, mut seen) = (Rng::new(3), [0.0; 4]);
    let mut world = GridWorld::new(8).unwrap();
    world.reset(&mut rng, &mut seen);
    let middle = |column: f32, row: f32| (64.0 * column + 32.0, 512.0 - 64.0 * row - 32.0);
    let ((x, y), (u, v)) = (middle(seen[0], seen[1]), middle(seen[2], seen[3]));
    assert_eq!((at(&world, x, y), at(&world, u, v)), ([0, 0, 255], [255, 0, 0]));
    let (mut board, mut seen) = (ConnectFour::new(), vec![0.0; 2 * 126]);
    board.reset(&mut rng, &mut seen);
    for action in [[3.0, 0.0], [0.0, 3.0]] {
        board.step(&action, &mut rng, &mut seen);
    }
    assert_eq!(at(&board, 350.0, 550.0), [210, 40, 40]);
    assert_eq!(at(&board, 350.0, 450.0), [204, 204, 0]);
    assert_eq!(at(&board, 350.0, 350.0), WHITE);
}

/// The mean of each colour.
fn means(picture: &Canvas) -> [f64; 3] {
    let mut sums = [0.0; 3];
    for pixel in picture.pixels() {
        sums.iter_mut().zip(pixel).for_each(|(sum, x)| *sum += f64::from(*x));
    }
    sums.map(|sum| sum / picture.pixels().len() as f64)
}

#[test]
fn all_environments_move_and_look_alike_at_any_size() {
    let device = Device::<Reference>::default().into_any();
    for spec in zoo::all() {
        let policy = ActorCritic::new(&spec.preset(None, None).unwrap().policy, &device).unwrap();
        let mut play = spec.play(&policy, 1).unwrap().sampled();
        play.reset().unwrap();
        let [width, height] = play.size().map(|x| x as usize);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..20 {
            let picture = play.picture(width, height);
            assert_eq!((picture.width(), picture.height()), (width, height));
            seen.insert(picture.pixels().to_vec());
            let small = play.picture(width / 4, height / 4);
            for (a, b) in means(&picture).iter().zip(means(&small)) {
                assert!((a - b).abs() < 4.0, "{}: {a} {b}", spec.name);
            }
            if play.step().unwrap() {
                play.reset().unwrap();
            }
        }
        assert!(seen.len() > 2, "{}: {} different pictures", spec.name, seen.len());
        assert!((1.0..=60.0).contains(&play.fps()));
        assert_eq!(play.picture(1, 1000).width(), 1);
        assert_eq!(play.picture(0, 0).pixels().len(), 1);
    }
}
