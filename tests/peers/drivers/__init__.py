"""One file a framework: it runs the scenarios the way that framework's own documentation would, and writes down what happened."""
