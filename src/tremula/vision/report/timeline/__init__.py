"""Time as it ran: the instructions walked again, from a history of what data decided."""
