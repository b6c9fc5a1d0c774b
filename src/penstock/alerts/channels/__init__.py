"""How notices look in each kind of channel, and how they are sent."""
