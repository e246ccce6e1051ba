"""Programs of Stan through PyStan; a frame is the polar factor of an unconstrained matrix. Needs a C++ compiler."""

import numpy as np

from .data import DATA

FRAME = """
  matrix[n, p] frame;
  {
    matrix[p, p] v = eigenvectors_sym(crossprod(z));
    frame = z * (diag_post_multiply(v, inv_sqrt(eigenvalues_sym(crossprod(z)))) * v');
  }
"""

MATRIX = (
    """
data {
  int n; int p;
  matrix[n, p] f; matrix[n, n] b; vector[p] weights;
}
parameters {
  matrix[n, p] z;
}
transformed parameters {"""
    + FRAME
    + """}
model {
  to_vector(z) ~ std_normal();
  target += sum(f .* frame) + sum(diag_post_multiply(frame .* (b * frame), weights));
}
generated quantities {
  vector[n * p] observed = to_vector(frame');
}
"""
)

PCA = (
    """
data {
  int n; int p; int rows;
  matrix[n, n] scatter;
}
parameters {
  matrix[n, p] z; vector[p + 1] x;
}
transformed parameters {
  vector[p] variances = exp(2 * x[1:p]);
  real noise = exp(2 * x[p + 1]);"""
    + FRAME
    + """}
model {
  to_vector(z) ~ std_normal();
  x ~ std_normal();
  vector[p] explained = variances ./ (noise * (noise + variances));
  vector[p] projected = (columns_dot_product(frame, scatter * frame))';
  target += -0.5 * rows * (sum(log(variances + noise)) + (n - p) * log(noise));
  target += -0.5 * (trace(scatter) / noise - dot_product(explained, projected));
}
generated quantities {
  vector[n + 1] observed = append_row(square(frame) * variances, x[p + 1]);
}
"""
)

EIGENMODEL = (
    """
data {
  int n; int p; int pairs;
  array[pairs] int first; array[pairs] int second; array[pairs] int edges;
}
parameters {
  matrix[n, p] z; vector[p + 1] x;
}
transformed parameters {
  vector[pairs] predictor;"""
    + FRAME
    + """
  {
    matrix[n, n] all_pairs = quad_form_sym(diag_matrix(x[1:p]), frame');
    for (i in 1:pairs) predictor[i] = all_pairs[first[i] + 1, second[i] + 1] + x[p + 1];
  }
}
model {
  to_vector(z) ~ std_normal();
  x[1:p] ~ normal(0, sqrt(n));
  x[p + 1] ~ normal(0, 10);
  edges ~ bernoulli_logit(predictor);
}
generated quantities {
  vector[(pairs + 39) %/% 40] observed;
  for (i in 1:num_elements(observed)) observed[i] = predictor[40 * (i - 1) + 1];
}
"""
)

SCHOOLS = """
data {
  vector[8] effects; vector[8] errors;
}
parameters {
  real mean_effect; real<lower=0> spread; vector[8] standard;
}
model {
  mean_effect ~ normal(0, 5);
  spread ~ cauchy(0, 5);
  standard ~ std_normal();
  effects ~ normal(mean_effect + spread * standard, errors);
}
generated quantities {
  vector[10] observed = append_row([mean_effect, log(spread)]', standard);
}
"""

PROGRAMS = {"matrix": MATRIX, "pca": PCA, "eigenmodel": EIGENMODEL, "schools": SCHOOLS}


def by_stan(name: str, chains: int, warmup: int, draws: int):
    import stan

    posterior = stan.build(PROGRAMS[name], data=DATA[name](), random_seed=1)
    fit = posterior.sample(num_chains=chains, num_warmup=warmup, num_samples=draws)
    observed = fit["observed"]  # observed, draws x chains with the chain running fastest
    return np.moveaxis(observed.reshape(len(observed), draws, chains), (2, 1), (0, 1))
