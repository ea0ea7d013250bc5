"""Steps of optimisers as modules: one variable, its gradient, and the state of both."""
