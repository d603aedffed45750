"""The gateway as a service: names, definitions, and the verbs that install and drive them."""
